"""Executes Volcano's Commands OpenQueue, CloseQueue and ResumeJob on the Karmada control plane."""
