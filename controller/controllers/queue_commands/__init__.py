"""Executes Volcano's Commands OpenQueue, CloseQueue, AbortJob and ResumeJob on the Karmada control plane."""
