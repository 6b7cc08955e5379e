"""Locates the data that DataSourceClaims name, and lets their workloads run where the data are."""
