"""A stand-in for Karmada, for the demo, the tests and the benchmarks: it is not Karmada, and is never shipped.

It plays, in one process, what a control plane of Karmada does between a user's
template and our admission, and the member clusters with Volcano below it. The
numbers are those of the ten facts about Karmada that shape the design; `§`
points to what was found about it in detail.

What it reproduces:

- the detector: claims of policies, bindings field by field, what survives its
  later passes (9), retries with a growing pause while a create is refused;
  a Volcano Job's binding carries no demand (5), and with the multi-template
  gate too little of it (6);
- the scheduler: suspension is an event filter and nothing else (1), so that
  what is in its queue is placed all the same (2); our pick is confirmed when it
  is feasible (4); without a spread constraint a job goes to every candidate (7);
  NoClusterFit is not tried again until something changes, what lacks replicas
  after five minutes (2), other errors with a growing pause (§1);
- works, with `suspendDispatching` and `preserveResourcesOnDeletion`; an
  eviction's works are removed at once (3); changes of a template go through
  to the clusters of a suspended binding (8);
- status from the member to the template; that of an evicted job stays as it
  was (§1); a waiting job has no pods, so that no summary shows it (§2).

What it leaves out, so far: graceful eviction tasks (kept as they are, their
cluster is no candidate), taints put on clusters that are not ready and the
moves that follow, overrides, dependents' bindings, ClusterResourceBindings,
preemption among policies, spread by region, the estimate of components under
the gate, quotas, priorities, events on objects, late pods and late summaries.
Its members have no nodes: what adds up, fits.
"""
