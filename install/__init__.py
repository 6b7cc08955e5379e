"""Installs, renews and removes the objects of volcano-global in the Karmada control plane, for the chart's Jobs."""
