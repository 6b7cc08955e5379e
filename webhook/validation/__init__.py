"""Answers reviews of Jobs, HyperJobs, Queues and DataSourceClaims: applies defaults and validates."""
