"""Member clusters for a real Karmada: one API server each, with a fake kubelet and a fake Volcano.

A Cluster with the annotation `standin.volcano-global.io/allocatable` gets a member, whose address and credentials are
set in the Cluster. For Karmada it is an ordinary cluster: Karmada reads its nodes and pods, and writes jobs into it.
The annotations equal those of the stand-in, so Clusters need not distinguish the two.

Simulated are: nodes with the annotated capacity, a pod for external usage, gangs that start when they fit and end
after their run time, their pods, and their status. Containers do not run.
"""
