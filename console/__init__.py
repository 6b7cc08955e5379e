"""Web console: read-only pages about queues, clusters and workloads, and the same data as JSON."""
