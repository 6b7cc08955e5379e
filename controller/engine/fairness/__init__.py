"""Divides quota among queues and decides whose turn it is."""
