"""Simulated member clusters."""
