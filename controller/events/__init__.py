"""Kubernetes events about workloads, queues and webhook configurations, written with lower priority than decisions."""
