"""Answers reviews of Jobs, HyperJobs and Queues by Volcano's defaults and rules."""
