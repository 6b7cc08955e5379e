"""Reads files and the live control plane."""
