"""Runs the admission loop and carries its decisions out."""
