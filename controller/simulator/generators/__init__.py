"""Loads that are made up: pure functions of a shape, a size and a seed."""
