"""A stand-in for Karmada, for the demo, the tests and the benchmarks: it is not Karmada, and is never shipped.

It plays, in one process, what a control plane of Karmada does between a user's
template and our admission, and the member clusters with Volcano below it. The
numbers are those of the ten facts about Karmada that shape the design; `§`
points to what was found about it in detail. What surprises is a switch of
`localup.karmada.quirks`, set with `--set name=value`; the tests marked
`karmada` say the same of it and of a real Karmada (`localup.realkarmada`).

What it reproduces:

- the detector: claims of policies, bindings field by field, what survives its
  later passes (9), retries with a growing pause while a create is refused;
  a Volcano Job's binding carries no demand (5), and with the multi-template
  gate too little of it (6); what belongs to no namespace has a
  ClusterResourceBinding; a policy that goes leaves its bindings unclaimed (§1);
- the scheduler: suspension is an event filter and nothing else (1), so that
  what is in its queue is placed all the same (2); our pick is confirmed when it
  is feasible (4); without a spread constraint a job goes to every candidate (7);
  ordered affinities are tried from the one observed last (§2); NoClusterFit is
  not tried again until something changes, what lacks replicas after five
  minutes (2), other errors with a growing pause (§1); a change of a cluster
  looks at unclaimed bindings too;
- works, with `suspendDispatching` and `preserveResourcesOnDeletion`; an
  eviction's works are removed at once (3), or when its task's grace is over
  (§1); changes of a template go through to the clusters of a suspended binding
  (8); what a template needs follows it with a binding of its own (§1);
- clusters: taints by readiness, and NoExecute, which moves what runs (§1, §2);
- status from the member to the template; that of an evicted job stays as it
  was (§1), until the template changes for another reason; a waiting job has no
  pods, so that no summary shows it (§2), and summaries and pods may be late.

What it leaves out: overrides, preemption among policies, spread by region, the
estimate of components under the gate, quotas, priorities, most events on
objects, needs of pods other than ConfigMaps, tolerations that end, and what
else than resources keeps a pod off a node.
"""
