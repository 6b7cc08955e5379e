"""What tenants are told about their workloads: Kubernetes events, never on the way of a decision."""
