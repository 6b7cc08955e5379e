"""The controller: watches the control plane, decides which workloads run next and where, and writes the decisions."""
