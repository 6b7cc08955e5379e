"""HyperJobs: one job that runs in several clusters as one Volcano Job each, with one status."""
