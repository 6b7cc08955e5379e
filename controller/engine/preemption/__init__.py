"""Selects victims for reclaim and preemption."""
