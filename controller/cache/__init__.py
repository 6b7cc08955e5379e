"""Caches the control plane's objects: informers update the store, and the store updates the engine's state."""
