"""Maintains the status of Queues."""
