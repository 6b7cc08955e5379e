"""Texts of ``--help`` with examples.

A line with only a backspace prevents the lines after it from being rewrapped.
"""

ABOUT = """
Queues, priorities and fair shares for batch and AI workloads that Karmada distributes over clusters.

Every command reads files (-f) or, without them, the live control plane; replay reads decision logs of the controller.
No command writes to the control plane.

\b
Examples:
  volcano-global plan -f objects.yaml       what is admitted next, and where
  volcano-global pending --queue research   what waits in a queue, and why
  volcano-global explain job train -n ml    why a job waits, and remedies

\b
Exit codes:
  0  success
  1  the command failed
  2  bad input; the message names the file, the document and the field
"""

PLAN = """
Plan one scheduling cycle and print it: admissions and their clusters, pending workloads and their reasons, and the
usage of the queues afterwards.

Files may contain Queues, Clusters, PriorityClasses, Jobs and other templates, propagation policies, bindings, HyperJobs
and a VolcanoGlobalConfiguration, as YAML or JSON, also as lists printed by kubectl. A HyperJob is planned as its Jobs.
A job without a binding is pending with the placement of the policy that matches it; without a policy, it may be placed
on any one cluster.

\b
Examples:
  volcano-global plan -f objects.yaml
  volcano-global plan -f queues/ -f jobs.yaml -o json
  kubectl get queues,clusters,jobs.batch.volcano.sh,resourcebindings -A -o yaml \\
    | volcano-global plan -f -
  volcano-global plan --kubeconfig karmada.config
"""

QUEUES = """
Print the queue hierarchy: weight, priority, state, pending workloads, usage, fair share and limit.

\b
Examples:
  volcano-global queues
  volcano-global queues -f objects.yaml -o json
"""

PENDING = """
Print the pending workloads after the next scheduling cycle: position, priority, pending time and reason.

\b
Examples:
  volcano-global pending
  volcano-global pending --queue research -o json
  volcano-global pending | grep InsufficientCapacity
"""

CLUSTERS = """
Print the member clusters: allocatable resources, external usage, our usage and free capacity.

\b
Examples:
  volcano-global clusters
  volcano-global clusters -f objects.yaml -o json
"""

EXPLAIN = """
Explain the state of a workload, and what would change it.
"""

EXPLAIN_JOB = """
Explain why a job is pending, which workloads are ahead of it, which clusters it could use and what would admit it; or
where it runs.

\b
Examples:
  volcano-global explain job train -n ml
  volcano-global explain job train -n ml -f objects.yaml -o json
"""

EXPLAIN_HYPERJOB = """
Explain how a HyperJob is split, or would be split now: each part, its size, its cluster and why, and why it is pending.

\b
Examples:
  volcano-global explain hyperjob llm-training -n ml
  volcano-global explain hyperjob llm-training -n ml -f objects.yaml -o json
"""

SIMULATE = """
Simulate jobs on virtual time and print statistics: waiting times, utilisation and fairness.

Files are those of plan. The annotation volcano-global.io/submit is the time at which a job is submitted (90s after the
start; at the start if missing), volcano-global.io/runtime is its run time. Clusters, queues and the
VolcanoGlobalConfiguration do not change. Times are whole numbers with h, m, s or ms: 1h30m, 90s, 200ms.

Loads that can be generated: gang (5 jobs of 6 pods, capacity for 9 pods), cohorts-30 and cohorts-1000 (queues that
borrow, jobs at fixed intervals), philly, helios and alibaba (measured on real clusters). --dump prints the generated
load as manifests.

\b
Examples:
  volcano-global simulate -f objects.yaml --until 8h
  volcano-global simulate -f objects.yaml -o json | jq .summary
  volcano-global simulate --generate gang --compare per-pod
  volcano-global simulate --generate philly --jobs 500 --plot shares.png
  volcano-global simulate --generate cohorts-30 --writes 50
  volcano-global simulate --generate helios --dump > helios.yaml
"""

REPLAY = """
Replay a decision log: pass its inputs to a new engine, and compare each decision with the recorded one.

The controller writes the decision log to the file of its flag --decision-log; rotated files are FILE.1, FILE.2 and
so on. Each file begins with a checkpoint, so each is replayed separately. An incomplete last line, for example after a
crash, is ignored and reported.

\b
Examples:
  volcano-global replay decisions.jsonl
  volcano-global replay decisions.jsonl.* decisions.jsonl -o json
  volcano-global replay decisions.jsonl --workload ml/train   also print the decisions about a workload
  kubectl -n karmada-system exec deployment/volcano-global-controller -- cat /var/lib/volcano-global/decisions.jsonl \\
    | volcano-global replay -

\b
Exit codes:
  0  all decisions are the same
  1  some decisions differ, or the file was altered; both decisions are printed
  2  bad input: the file is missing or a line is invalid; the message names the line
"""
