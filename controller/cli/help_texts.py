"""What ``--help`` teaches, with examples.

A line with a backspace alone keeps the lines after it as they are written.
"""

ABOUT = """
Queues, order and fair share for batch and AI work that Karmada spreads over many clusters.

Every command looks at files (-f) or, without them, at the live control plane; replay reads journals that the controller
has written. None of them writes anything.

\b
Examples:
  volcano-global plan -f world.yaml         who would be admitted, and where
  volcano-global pending --queue research   who waits in a queue, and why
  volcano-global explain job train -n ml    why it waits, and what would help

\b
Exit codes:
  0  done
  1  the command could not be carried out
  2  bad input: the file, the document and the field are named
"""

PLAN = """
Decide one round and print it: who is admitted where, who waits for what, and how the queues stand after it.

Files may hold Queues, Clusters, PriorityClasses, Jobs and other templates, propagation policies, bindings, HyperJobs
and a VolcanoGlobalConfiguration, as YAML or JSON, also as lists that kubectl wrote. A HyperJob is planned as the Jobs it
becomes. A job without a binding waits with the
placement of the policy that selects it; if none does, it may go to any one cluster.

\b
Examples:
  volcano-global plan -f world.yaml
  volcano-global plan -f queues/ -f jobs.yaml -o json
  kubectl get queues,clusters,jobs.batch.volcano.sh,resourcebindings -A -o yaml \\
    | volcano-global plan -f -
  volcano-global plan --kubeconfig karmada.config
"""

QUEUES = """
Print the tree of queues: weight, priority, state, who waits, and what they hold of what they may.

\b
Examples:
  volcano-global queues
  volcano-global queues -f world.yaml -o json
"""

PENDING = """
Print who waits after the next round: position, priority, since when, and the reason.

\b
Examples:
  volcano-global pending
  volcano-global pending --queue research -o json
  volcano-global pending | grep InsufficientCapacity
"""

CLUSTERS = """
Print the member clusters: what they have, what others use of it, what is ours, and what is left.

\b
Examples:
  volcano-global clusters
  volcano-global clusters -f world.yaml -o json
"""

EXPLAIN = """
Say in sentences where a workload stands, and what would change that.
"""

EXPLAIN_JOB = """
Say why a job waits, who is before it, where it could go, and what would let it in; or where it is.

\b
Examples:
  volcano-global explain job train -n ml
  volcano-global explain job train -n ml -f world.yaml -o json
"""

EXPLAIN_HYPERJOB = """
Say how a HyperJob is split, or would be now: each part, its size, why it goes where it does, and why it waits.

\b
Examples:
  volcano-global explain hyperjob llm-training -n ml
  volcano-global explain hyperjob llm-training -n ml -f world.yaml -o json
"""

SIMULATE = """
Play jobs against the decisions on virtual time, and print what became of them: waiting times, use, fairness.

Files are those of plan. When a job comes and how long it runs say its annotations volcano-global.io/submit (90s after
the start; at the start if missing) and volcano-global.io/runtime. Clusters, queues and the VolcanoGlobalConfiguration are
taken as they are; whole numbers with h, m, s or ms make a time: 1h30m, 90s, 200ms.

Shapes that can be made up: gang (5 jobs of 6 pods, room for 9), cohorts-30 and cohorts-1000 (queues that share, jobs in
strict rhythm), philly, helios and alibaba (as measured on real clusters). --dump prints one as manifests to edit.

\b
Examples:
  volcano-global simulate -f world.yaml --until 8h
  volcano-global simulate -f world.yaml -o json | jq .summary
  volcano-global simulate --generate gang --compare per-pod
  volcano-global simulate --generate philly --jobs 500 --plot shares.png
  volcano-global simulate --generate cohorts-30 --writes 50
  volcano-global simulate --generate helios --dump > helios.yaml
"""

REPLAY = """
Judge a journal of decisions again: tell its inputs to a new world, and compare each decision with the recorded one.

The controller writes the journal where its flag --decision-journal names a file; those before it are FILE.1, FILE.2 and
so on. Each file begins with all that was known, so each is replayed by itself. A last line that was cut off, as by a
crash, is left out and told.

\b
Examples:
  volcano-global replay decisions.jsonl
  volcano-global replay decisions.jsonl.* decisions.jsonl -o json
  volcano-global replay decisions.jsonl --workload ml/train   all that was decided about it
  kubectl -n karmada-system exec deployment/volcano-global-controller -- cat /var/lib/volcano-global/decisions.jsonl \\
    | volcano-global replay -

\b
Exit codes:
  0  every decision is the same
  1  some are not, or the file is not as it was written; each is named with both decisions
  2  bad input: no such file, or a line in it that is none; the line is named
"""
