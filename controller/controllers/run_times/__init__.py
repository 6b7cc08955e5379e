"""Learns run times from the ends of admitted workloads."""
