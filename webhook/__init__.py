"""The admission webhook: suspends new bindings, and reviews Jobs, HyperJobs, Queues and DataSourceClaims."""
