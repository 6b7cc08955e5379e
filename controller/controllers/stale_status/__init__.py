"""Corrects the status of evicted workloads, which Karmada leaves stale."""
