"""What the engine knows: queues, workloads, clusters, their usage and pending classes; imports no algorithm."""
