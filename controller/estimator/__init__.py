"""Karmada's scheduler estimators, one per member cluster: asked over gRPC for room on nodes."""
