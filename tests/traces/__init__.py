"""Generates loads from a shape, a size and a seed."""
