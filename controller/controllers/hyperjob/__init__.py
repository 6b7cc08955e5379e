"""HyperJob controller: splits one job into one Volcano Job per cluster, with one combined status."""
