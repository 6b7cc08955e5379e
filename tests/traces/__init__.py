"""Generates loads from a shape, a size and a seed, and plots simulations; a development tool."""
