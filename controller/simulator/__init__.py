"""Simulates a trace of jobs with the engine on virtual time, without a control plane."""
