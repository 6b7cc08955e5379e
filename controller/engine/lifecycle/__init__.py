"""Follows workloads after the decision: gangs, startup and resize."""
