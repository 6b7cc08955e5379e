"""Hostile objects of every kind that the stock role `edit` may write, by kind."""

import copy
import random
from typing import Any

from tests.hostile.fields import (
    CLASSES,
    CLUSTERS,
    COUNTS,
    NAMES,
    QUEUES,
    container,
    deep,
    expression,
    metadata,
    odd,
    pod,
    size,
)
from tests.webhook.fuzz import mutate

Object = dict[str, Any]
JOB = "batch.volcano.sh/v1alpha1"
POLICY = "policy.karmada.io/v1alpha1"
LARGE = 1_200_000
"""The bytes of a large object; etcd takes 1.5 MiB."""


def made_of(dice: random.Random, version: str, kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": metadata(dice, name), "spec": spec}


def job(dice: random.Random, name: str) -> Object:
    """Return a Volcano Job: about a third are sound but for some fields, so that they are stored."""
    made = made_of(dice, JOB, "Job", name, job_spec(dice))
    if dice.random() < 0.08:
        mutate(made["spec"], dice)
    return made


def job_spec(dice: random.Random) -> Object:
    """Return the spec of a Volcano Job with some odd fields."""
    spec: Object = {"minAvailable": 1, "queue": dice.choice(QUEUES[:5]), "tasks": [_task(dice, "main")]}
    oddities: dict[str, Any] = {
        "minAvailable": lambda: dice.choice(COUNTS),
        "queue": lambda: dice.choice(QUEUES),
        "tasks": lambda: _tasks(dice),
        "priorityClassName": lambda: dice.choice(CLASSES),
        "schedulerName": lambda: dice.choice(NAMES),
        "maxRetry": lambda: dice.choice(COUNTS),
        "minSuccess": lambda: dice.choice((1, 2**31 - 1, *COUNTS[:4])),
        "ttlSecondsAfterFinished": lambda: dice.choice(COUNTS),
        "runningEstimate": lambda: dice.choice(("1s", "x", "-1h", "9999999h")),
        "plugins": lambda: {"mpi": ["--master=m"] * size(dice, 1, 3000), "svc": [], "x": []},
        "policies": lambda: [{"exitCode": n, "action": "AbortJob"} for n in range(size(dice, 1, 2000))],
        "volumes": lambda: [{"mountPath": f"/{n}", "volumeClaim": {}} for n in range(size(dice, 1, 2000))],
        "networkTopology": lambda: {"mode": dice.choice(("hard", "x")), "highestTierAllowed": dice.choice(COUNTS)},
        "unknown": deep,
    }
    spec |= odd(dice, oddities, 0, 0, 0, 1, 1, 3)
    if spec["tasks"] and dice.random() < 0.01:
        large = {"name": "main", "image": "i", "args": ["x" * LARGE]}
        spec["tasks"][0]["template"] = {"spec": {"containers": [large]}}
    return spec


def _task(dice: random.Random, name: str) -> Object:
    spec = pod(dice) if dice.random() < 0.4 else {"containers": [container(dice, cpu="1", memory="1Gi")]}
    template: Object = {"spec": spec}
    if dice.random() < 0.05:
        template["metadata"] = metadata(dice, "x")
    replicas = dice.choice((1, 2, 3, *COUNTS)) if dice.random() < 0.15 else dice.choice((1, 2, 3))
    return {"name": name, "replicas": replicas, "template": template}


def _tasks(dice: random.Random) -> list[Object]:
    """Return up to thousands of tasks, in a chain or all of one name."""
    count, is_chain = size(dice, 0, 2, 30, 900, 6000), dice.random() < 0.5
    tasks = [
        {"name": f"t{n}", "replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
        for n in range(count)
    ]
    for number, task in enumerate(tasks):
        if is_chain and number:
            task["dependsOn"] = {"name": [f"t{number - 1}"]}
        elif not is_chain and dice.random() < 0.1:
            task["minAvailable"] = dice.choice(COUNTS)
    return tasks


def hyperjob(dice: random.Random, name: str) -> Object:
    """Return a HyperJob of upstream's group, or of the one that Volcano's documentation spells."""
    oddities: dict[str, Any] = {
        "minAvailable": dice.choice(COUNTS),
        "maxDomains": dice.choice(COUNTS),
        "suspend": True,
        "ttlSecondsAfterFinished": dice.choice(COUNTS),
        "failurePolicy": {"maxRetries": 2**31 - 1, "retryOn": "AnyCluster", "maxRestarts": 2**31 - 1},
        "cleanupPolicy": "All",
        "clusterAffinity": affinity(dice),
        "clusterTolerations": [{"key": each, "operator": "Exists"} for each in NAMES],
        "splitPolicy": _split(dice),
    }
    options = odd(dice, oddities, 0, 0, 1, 2, 5)
    if dice.random() < 0.3:
        template = {"apiVersion": JOB, "kind": "Job", "spec": job_spec(dice)}
        spec: Object = {"template": template, "replicas": _replicas(dice), **options}
        version = JOB
    else:
        count = size(dice, 1, 1, 1, 2, 200)
        spec = {"replicatedJobs": [_replicated(dice, f"r{n}") for n in range(count)], **options}
        version = "training.volcano.sh/v1alpha1"
    made = made_of(dice, version, "HyperJob", name, spec)
    if dice.random() < 0.1:
        mutate(made["spec"], dice)
    return made


def _replicated(dice: random.Random, name: str) -> Object:
    made = {"name": name, "replicas": _replicas(dice), "templateSpec": job_spec(dice)}
    if dice.random() < 0.3:
        made["splitPolicy"] = _split(dice)
    if dice.random() < 0.2:
        made["clusterNames"] = [dice.choice(CLUSTERS) for _ in range(size(dice, 1, 500))]
    return made


def _replicas(dice: random.Random) -> Any:
    """Return few replicas mostly, or as many as are allowed, or more."""
    return dice.choice((1, 1, 2, 2, 3, 5)) if dice.random() < 0.9 else dice.choice((100, 1000, 400_000, *COUNTS))


def _split(dice: random.Random) -> Object:
    shares = [{"name": dice.choice(CLUSTERS), "replicas": dice.choice(COUNTS)} for _ in range(size(dice, 1, 3, 500))]
    return {
        "mode": dice.choice(("static", "auto")),
        "strategy": dice.choice(("ByCluster", "ByReplicas", "x")),
        "parts": dice.choice((1, 2, 1000, 10**9)),
        "accelerators": dice.choice((1, 8, 10**9)),
        "acceleratorType": dice.choice(("nvidia.com/gpu", *NAMES)),
        "clusters": shares,
    }


def deployment(dice: random.Random, name: str) -> Object:
    """Return a Deployment that requests nothing, of any number of replicas."""
    labels = {"matchLabels": {"app": "x"}}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": dice.choice((0, 1, 1000, 2**31 - 1)), "selector": labels, "template": template}
    return made_of(dice, "apps/v1", "Deployment", name, spec)


def config_map(dice: random.Random, name: str) -> Object:
    """Return a ConfigMap, sometimes a large one."""
    size = dice.choice((10, 1000, 20_000)) if dice.random() < 0.98 else LARGE // 2
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(dice, name), "data": {"a": "x" * size}}


def affinity(dice: random.Random) -> Object:
    """Return a ClusterAffinity of any size."""
    return {
        "labelSelector": {"matchExpressions": [expression(dice) for _ in range(size(dice, 0, 1, 50, 1000))]},
        "fieldSelector": {"matchExpressions": [expression(dice) for _ in range(size(dice, 0, 1, 50))]},
        "clusterNames": [dice.choice(CLUSTERS) for _ in range(size(dice, 0, 1, 3, 1000))],
        "exclude": [dice.choice(CLUSTERS) for _ in range(size(dice, 0, 1, 1000))],
    }


def propagation(dice: random.Random, name: str) -> Object:
    """Return a PropagationPolicy with an odd placement."""
    one = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}
    placement: Object = {"clusterAffinity": affinity(dice)} if dice.random() < 0.6 else {}
    spread = {"spreadByField": dice.choice(("cluster", "region", "x")), "minGroups": dice.choice(COUNTS)}
    weight = {"targetCluster": affinity(dice), "weight": dice.choice(COUNTS)}
    oddities: dict[str, Any] = {
        "clusterAffinities": lambda: [
            {"affinityName": f"a{n}", **(affinity(dice) if n < 3 else {})} for n in range(size(dice, 1, 20, 1000))
        ],
        "clusterTolerations": lambda: [{"key": name, "operator": "Exists"} for name in NAMES * 20],
        "spreadConstraints": lambda: [spread | {"maxGroups": dice.choice(COUNTS)}] * size(dice, 1, 100),
        "replicaScheduling": lambda: one | {"weightPreference": {"staticWeightList": [weight] * size(dice, 1, 30)}},
        "workloadAffinity": deep,
    }
    placement |= odd(dice, oddities, 0, 1, 1, 2)
    spec: Object = {"resourceSelectors": [_selector(dice)], "placement": placement}
    more: dict[str, Any] = {
        "priority": dice.choice(COUNTS),
        "conflictResolution": dice.choice(("Overwrite", "Abort", "x")),
        "preserveResourcesOnDeletion": True,
        "suspension": {"dispatching": True},
        "failover": {"application": {"decisionConditions": {"tolerationSeconds": 0}, "purgeMode": "Directly"}},
        "schedulerName": dice.choice(NAMES),
        "propagateDeps": True,
        "activationPreference": "Lazy",
        "schedulePriority": {"priorityClassSource": "KubePriorityClass", "priorityClassName": dice.choice(CLASSES)},
    }
    return made_of(dice, POLICY, "PropagationPolicy", name, spec | odd(dice, more, 0, 0, 1, 2))


def _selector(dice: random.Random) -> Object:
    selector: Object = {"apiVersion": JOB, "kind": "Job"}
    if dice.random() < 0.7:
        selector["name"] = f"job-{dice.randrange(300)}"
    if dice.random() < 0.2:
        selector["labelSelector"] = {"matchExpressions": [expression(dice) for _ in range(size(dice, 1, 500))]}
    return selector if dice.random() < 0.8 else {"apiVersion": "apps/v1", "kind": "Deployment"}


def override(dice: random.Random, name: str) -> Object:
    """Return an OverridePolicy; the admission policies refuse what changes charges."""
    paths = ("/spec/queue", "/spec/tasks/0/replicas", "/spec", "", "/metadata/annotations/a", "x" * 4000, "/spec/~2")
    plain = [{"path": dice.choice(paths), "operator": dice.choice(("replace", "add", "remove")), "value": deep(20)}]
    image = [{"component": "Repository", "operator": "replace", "value": dice.choice(NAMES)}]
    overriders = dice.choice(({"plaintext": plain * size(dice, 1, 500)}, {"imageOverrider": image}))
    spec = {"resourceSelectors": [_selector(dice)], "overrideRules": [{"overriders": overriders}]}
    return made_of(dice, POLICY, "OverridePolicy", name, spec)


def command(dice: random.Random, name: str) -> Object:
    """Return a Command for a queue or a job."""
    version = dice.choice((JOB, "scheduling.volcano.sh/v1beta1"))
    kind = dice.choice(("Queue", "Job", "x"))
    target = {"apiVersion": version, "kind": kind, "name": dice.choice(QUEUES), "uid": "u"}
    action = dice.choice(("OpenQueue", "CloseQueue", "AbortJob", "RestartJob", "x"))
    named = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": metadata(dice, name)}
    return named | {"action": action, "target": target}


def work(dice: random.Random, name: str) -> Object:
    """Return a Work in the tenant's own namespace."""
    manifests = [job(dice, "x")] if dice.random() < 0.5 else [{}]
    made = made_of(dice, "work.karmada.io/v1alpha1", "Work", name, {"workload": {"manifests": manifests}})
    made["metadata"]["labels"] = {"resourcebinding.karmada.io/permanent-id": dice.choice(("x", "1"))}
    return made


def binding(dice: random.Random, name: str) -> Object:
    """Return a ResourceBinding that no detector has made."""
    resource = {"apiVersion": JOB, "kind": "Job", "name": name, "uid": "u", "namespace": dice.choice(NAMES)}
    spec: Object = {"resource": resource, "clusters": [{"name": dice.choice(CLUSTERS)}]}
    return made_of(dice, "work.karmada.io/v1alpha2", "ResourceBinding", name, spec)


def binding_patch(dice: random.Random) -> Object:
    """Return a merge patch of a binding's spec, status or metadata."""
    label = dice.choice(("a", "propagationpolicy.karmada.io/permanent-id", "volcano.sh/queue-name"))
    patches: tuple[Object, ...] = (
        {"spec": {"suspension": None}},
        {"spec": {"suspension": {"scheduling": False}, "clusters": [{"name": "c1"}]}},
        {"spec": {"clusters": [{"name": dice.choice(CLUSTERS)} for _ in range(1000)]}},
        {"spec": {"components": [{"name": "x", "replicas": 2**31 - 1}], "placement": {"clusterAffinity": deep()}}},
        {"spec": {"gracefulEvictionTasks": [{"fromCluster": "c1", "reason": "x", "producer": "x"}] * 500}},
        {"spec": {"resource": {"name": "other", "uid": "x", "kind": "Deployment", "apiVersion": "apps/v1"}}},
        {"metadata": {"labels": {label: "x"}}},
        {"metadata": {"annotations": {"volcano-global.io/admission": "{}"}}},
        {"metadata": {"annotations": {"a": "x" * 100_000}}},
        {"metadata": {"finalizers": ["example.com/never"]}},
        {"status": {"aggregatedStatus": [{"clusterName": "c1", "status": {"state": {"phase": "Completed"}}}]}},
    )
    return copy.deepcopy(dice.choice(patches))
