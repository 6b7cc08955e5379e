"""Read-only HTTPS endpoint that answers tenants why their workloads are pending."""
