"""Stand-in for Karmada for demo, tests and benchmarks; it is not Karmada and is never distributed.

One process reproduces what Karmada's control plane does between a template and our admission, and simulates member
clusters with Volcano. Numbers are those of the ten facts about Karmada that shape the design; `§` refers to the
detailed findings. Tests marked `karmada` run against the stand-in and against a real Karmada (`localup.realkarmada`).

Reproduced:

- detector: claims of policies, bindings field by field, fields that survive later passes (9), retries with backoff
  while a create is rejected; the binding of a Volcano Job has no requests (5); cluster-scoped templates have a
  ClusterResourceBinding; deleting a policy leaves its bindings unclaimed (§1);
- scheduler: suspension is only an event filter (1), so queued bindings are still scheduled (2); a preset cluster is
  confirmed if feasible (4); without a spread constraint a job goes to every feasible cluster (7); ordered affinities
  are tried from the last observed one (§2); NoClusterFit is retried only after a change, missing replicas after five
  minutes (2), other errors with backoff (§1); a change of a cluster also triggers unclaimed bindings;
- works, with `suspendDispatching` and `preserveResourcesOnDeletion`; an eviction removes works immediately (3) or
  after the grace period of its task (§1); template changes reach the clusters of a suspended binding (8);
- clusters: taints by readiness, and NoExecute taints, which move running workloads (§1, §2);
- status from the member to the template; the status of an evicted job stays (§1) until the template changes for
  another reason; a pending job has no pods, so no summary includes it (§2).

Not reproduced: overrides, preemption among policies, failover of applications, spread by region,
the component estimator, quotas, priorities, events, dependencies of templates, tolerations with an end, and node
constraints other than resources.
"""
