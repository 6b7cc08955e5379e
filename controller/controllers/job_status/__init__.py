"""Maintains the status of Volcano Jobs that no cluster reports yet."""
