"""The policies that send workloads to clusters, and changes of them and of the labels and taints of clusters."""

import asyncio
import random
from collections.abc import Mapping
from typing import Final

from tests.deterministic import kinds
from tests.deterministic.objects import Kind, Object, path_of
from tests.deterministic.system import NAMESPACE, System

PLACEMENT: Final = "placement"
"""The label with which a workload chooses its placement."""
TAINT: Final = "example.com/repair"
"""The key of the taint that operators set on clusters."""
TIER: Final = "example.com/tier"
"""The label by which a policy selects clusters."""
SITES: Mapping[str, tuple[str, str]] = {
    "member1": ("gold", "north"),
    "member2": ("gold", "south"),
    "member3": ("silver", "south"),
}
"""The label and the region of each cluster."""
_ONE_CLUSTER = {"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}
_GOLD = {"labelSelector": {"matchLabels": {TIER: "gold"}}}
_SOUTH = {"fieldSelector": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["south"]}]}}
PLACEMENTS: Mapping[str, Object] = {
    "": _ONE_CLUSTER,
    "ordered": {
        **_ONE_CLUSTER,
        "clusterAffinities": [
            {"affinityName": "small", "clusterNames": ["member3"]},
            {"affinityName": "others", "clusterNames": ["member1", "member2"]},
        ],
    },
    "copied": {"clusterAffinity": {"clusterNames": ["member1", "member3"]}},
    "gold": {**_ONE_CLUSTER, "clusterAffinity": _GOLD},
    "south": {**_ONE_CLUSTER, "clusterAffinity": _SOUTH},
}
"""Placements of jobs by the value of the label; without it the first one."""
DIVISIONS: Mapping[str, Object] = {
    "available": {
        "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"},
    },
    "aggregated": {"replicaDivisionPreference": "Aggregated"},
    "static": {"replicaDivisionPreference": "Weighted"},
}
"""How the replicas of Deployments are divided, by the value of the label."""


def _policy(kind: Kind, label: str, placement: Object) -> Object:
    """Return the spec of a policy for the objects of *kind*, or those with a *label*."""
    labels = {"labelSelector": {"matchLabels": {PLACEMENT: label}}} if label else {}
    selector = {"apiVersion": kind.api_version, "kind": kind.name, **labels}
    return {"resourceSelectors": [selector], "placement": placement}


POLICIES: Mapping[str, Object] = {
    **{f"{name or 'usual'}-jobs": _policy(kinds.JOBS, name, placement) for name, placement in PLACEMENTS.items()},
    "batch-jobs": _policy(kinds.BATCH_JOBS, "", _ONE_CLUSTER),
    **{
        f"{name}-deployments": _policy(
            kinds.DEPLOYMENTS, name, {"replicaScheduling": {"replicaSchedulingType": "Divided", **division}}
        )
        for name, division in DIVISIONS.items()
    },
}
"""The specs of the policies by name."""


async def restore_policy(system: System, name: str) -> None:
    """Create a policy, or give it its usual spec."""
    stored = system.server.objects(kinds.POLICIES).get((NAMESPACE, name))
    if stored is None:
        metadata = {"name": name, "namespace": NAMESPACE}
        await system.create(kinds.POLICIES, {"metadata": metadata, "spec": dict(POLICIES[name])})
    else:
        path = path_of(kinds.POLICIES, NAMESPACE, name)
        await system.send("PUT", path, {**stored, "spec": dict(POLICIES[name])})


def _changed_affinity(draw: random.Random) -> Object:
    """Return another affinity to clusters."""
    name = draw.choice(sorted(SITES))
    return draw.choice((_GOLD, _SOUTH, {"exclude": [name]}, {"clusterNames": sorted({*SITES} - {name})}))


async def change_policy(system: System, draw: random.Random) -> None:
    """Change a policy for some time, with all workloads that it propagates."""
    name = draw.choice(sorted(POLICIES))
    is_ordered = "clusterAffinities" in POLICIES[name]["placement"]
    on_one = {"dispatchingOnClusters": {"clusterNames": [draw.choice(sorted(SITES))]}}
    two_clusters = [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 2}]
    of_jobs: tuple[Object, ...] = (
        {"preserveResourcesOnDeletion": True},
        {"placement": {"spreadConstraints": two_clusters}},
    )
    changes: tuple[Object, ...] = (
        {} if is_ordered else {"placement": {"clusterAffinity": _changed_affinity(draw)}},
        {"placement": {"clusterTolerations": [{"key": TAINT, "operator": "Exists"}]}},
        {"suspension": draw.choice(({"dispatching": True}, on_one))},
        {"failover": {"cluster": {"purgeMode": "Directly"}}},
        draw.choice(of_jobs) if name.endswith("-jobs") else {},
    )
    await system.merge(kinds.POLICIES, (NAMESPACE, name), {"spec": draw.choice((changes[0], *changes))})
    await asyncio.sleep(draw.choice((5, 60, 240)))
    await restore_policy(system, name)


async def fail_over(system: System, draw: random.Random) -> None:
    """Let Karmada move what fails for some time; users confirm deletions that wait for it."""
    name = draw.choice(sorted(POLICIES))
    behavior: Object = {
        "decisionConditions": {"tolerationSeconds": draw.choice((0, 10))},
        "purgeMode": draw.choice(("Gracefully", "Directly", "Never")),
        "gracePeriodSeconds": draw.choice((5, 60)),
    }
    change: Object = {"propagateDeps": True, "failover": {"application": behavior}}
    await system.merge(kinds.POLICIES, (NAMESPACE, name), {"spec": change})
    await asyncio.sleep(draw.choice((120, 400)))
    await restore_policy(system, name)
    # Karmada may evict once more by the former policy before each binding has the restored one.
    await asyncio.sleep(60)
    for key, binding in sorted(system.server.objects(kinds.BINDINGS).items()):
        tasks = binding["spec"].get("gracefulEvictionTasks") or ()
        if any(task.get("suppressDeletion") for task in tasks):
            confirmed = [{**task, "suppressDeletion": False} if "suppressDeletion" in task else task for task in tasks]
            await system.merge(kinds.BINDINGS, key, {"spec": {"gracefulEvictionTasks": confirmed}})


async def delete_policy(system: System, draw: random.Random) -> None:
    """Delete a policy for some time; its workloads get another policy, or none."""
    name = draw.choice(sorted(POLICIES))
    await system.delete(kinds.POLICIES, (NAMESPACE, name))
    await asyncio.sleep(draw.choice((2, 20, 120)))
    await restore_policy(system, name)


async def preempt_policy(system: System, draw: random.Random) -> None:
    """Let a policy of higher priority take a job over from its policy for some time."""
    names = sorted(key[1] for key in system.server.objects(kinds.JOBS) if key[1].startswith("job-"))
    if not names:
        return
    name = draw.choice(names)
    selector = {"apiVersion": kinds.JOBS.api_version, "kind": kinds.JOBS.name, "name": name}
    spec: Object = {
        "resourceSelectors": [selector],
        "placement": {**_ONE_CLUSTER, "clusterAffinity": _changed_affinity(draw)},
        "priority": 10,
        "preemption": "Always",
    }
    await system.create(kinds.POLICIES, {"metadata": {"name": f"only-{name}", "namespace": NAMESPACE}, "spec": spec})
    await asyncio.sleep(draw.choice((5, 60, 240)))
    await system.delete(kinds.POLICIES, (NAMESPACE, f"only-{name}"))


# -- clusters -------------------------------------------------------------------------


async def move_cluster(system: System, draw: random.Random) -> None:
    """Give a cluster another label and region, so that other affinities match it."""
    name = draw.choice(sorted(SITES))
    await locate_cluster(system, name, draw.choice(sorted(SITES.values())))


async def locate_cluster(system: System, name: str, site: tuple[str, str]) -> None:
    """Set the label and the region of a cluster."""
    tier, region = site
    change: Object = {"metadata": {"labels": {TIER: tier}}, "spec": {"region": region}}
    await system.merge(kinds.CLUSTERS, ("", name), change)


async def taint_cluster(system: System, draw: random.Random) -> None:
    """Taint a cluster for some time, as a ClusterTaintPolicy does; Karmada moves what a NoExecute taint evicts."""
    name = draw.choice(sorted(SITES))
    await set_taint(system, name, draw.choice(("NoSchedule", "NoExecute", "NoExecute")))
    await asyncio.sleep(draw.choice((5, 60, 240)))
    await set_taint(system, name, "")


async def set_taint(system: System, name: str, effect: str) -> None:
    """Set the effect of the taint of a cluster that exists, or remove it; those that Karmada sets stay."""
    if (cluster := system.server.objects(kinds.CLUSTERS).get(("", name))) is not None:
        taints = [taint for taint in cluster["spec"].get("taints") or () if taint["key"] != TAINT]
        taints += [{"key": TAINT, "value": "yes", "effect": effect}] if effect else []
        await system.merge(kinds.CLUSTERS, ("", name), {"spec": {"taints": taints or None}})
