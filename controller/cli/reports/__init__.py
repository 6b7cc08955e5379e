"""Builds the reports of the commands from a snapshot."""
