"""The admission webhook: pauses new bindings before Karmada sees them."""
