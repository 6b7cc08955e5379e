"""Reports what the controller does: messages, metrics, probes and the decision log."""
