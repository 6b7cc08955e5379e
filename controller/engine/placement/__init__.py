"""Decides which clusters match a workload, and whether and where it fits."""
