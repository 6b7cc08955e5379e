"""Queries Karmada's scheduler estimators, one per member cluster, over gRPC for free capacity on nodes."""
