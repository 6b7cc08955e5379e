"""What is known: informers keep it current, the store joins it, the engine is told."""
