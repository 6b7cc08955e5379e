"""The engine on virtual time: what becomes of a trace of jobs, without a control plane and without waiting."""
