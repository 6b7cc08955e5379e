"""Local control plane for demo, tests and benchmarks; not part of the distribution."""
