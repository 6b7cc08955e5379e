"""Divides quota among queues, and orders workloads between and inside queues."""
