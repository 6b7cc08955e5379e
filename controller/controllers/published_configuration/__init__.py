"""Publishes the active configuration in the control plane, for the command line."""
