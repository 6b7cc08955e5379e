"""Member clusters for a real Karmada: an API server each, in which somebody plays Volcano, the kubelets and the nodes.

A Cluster whose annotation `standin.volcano-global.io/allocatable` says what it
has gets one, is given its address and credentials, and from then on is a
cluster like any other to Karmada, which reads its nodes and pods and writes
jobs into it. The annotations are those of the stand-in, so that whoever makes
clusters does not have to know which of the two is at work.

What is played: one node as large as the annotation says; a pod for what others
use; gangs that start when all of them fit and end after their time; their pods
while they run, and their status. Nothing runs in the pods.
"""
