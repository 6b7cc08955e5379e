"""What tenants, operators and clusters do to the simulated system, and the script of it that a seed gives."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.deterministic import edits, kinds, propagation
from tests.deterministic.edits import random_key
from tests.deterministic.objects import Key, Kind, Object
from tests.deterministic.propagation import DIVISIONS, PLACEMENT, PLACEMENTS
from tests.deterministic.system import DATA_SYSTEM, LOCATIONS, NAMESPACE, System, wait_until
from tests.deterministic.worlds import timestamp
from tests.rig import requests
from tests.rig.observed_usage import QUEUE_NAME

CLUSTERS: Mapping[str, Mapping[str, str]] = {
    "member1": {"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "4"},
    "member2": {"cpu": "24", "memory": "96Gi", "pods": "110", "nvidia.com/gpu": "4"},
    "member3": {"cpu": "8", "memory": "32Gi", "pods": "20"},
}
QUEUES: Mapping[str, Object] = {
    "default": {"weight": 1},
    "research": {"weight": 1, "capability": {"cpu": "40"}},
    "vision": {"weight": 1, "parent": "research"},
    "speech": {"weight": 3, "parent": "research"},
    "urgent": {"weight": 1, "priority": 100, "capability": {"cpu": "12"}},
}
LEAVES = ("default", "vision", "speech", "urgent")
CLASSES: Mapping[str, int] = {"high": 1000, "low": -10}
ALLOCATABLE = "standin.volcano-global.io/allocatable"
EXTERNAL = "standin.volcano-global.io/external-usage"
READY = "standin.volcano-global.io/ready"
REFUSE_WORKS = "standin.volcano-global.io/refuse-works"
NEVER = "never-"
"""Prefix of the names of jobs that can never be admitted."""
CLAIMED = "data-"
"""Prefix of the names of jobs with a DataSourceClaim."""
PLACED = "placed-"
"""Prefix of the names of jobs with a placement of their own."""
SERVICE = "service-"
"""Prefix of the names of Deployments."""
BATCH = "batch-"
"""Prefix of the names of Jobs of Kubernetes."""
HOSTILE = "hostile-"
"""Prefix of the names of objects that are written to cause damage."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One action at a time in seconds; *draw* seeds its choices."""

    at: float
    name: str
    draw: int


Action = Callable[[System, random.Random], Awaitable[None]]


# -- objects of tenants ------------------------------------------------------------


def job(name: str, queue: str, *, pods: int, cpu: str, seconds: int, **more: Any) -> Object:
    """Return a Volcano Job of *pods* equal pods that start together, in one task or in two."""
    gpus = {"nvidia.com/gpu": more["gpu"]} if more.get("gpu") else {}
    resources = {"requests": {"cpu": cpu, "memory": "1Gi", **gpus}, **({"limits": gpus} if gpus else {})}
    container = {"name": "main", "image": "busybox", "resources": resources}
    annotations = {"volcano-global.io/runtime": f"{seconds}s"}
    if more.get("fails"):
        annotations["volcano-global.io/outcome"] = "Failed"
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    tasks = {"driver": 1, "main": pods - 1} if more.get("driver") and pods > 1 else {"main": pods}
    spec: Object = {
        "minAvailable": more.get("minimum", pods),
        "tasks": [{"name": name, "replicas": count, "template": template} for name, count in tasks.items()],
        **({"queue": queue} if queue else {}),
        **({"priorityClassName": more["priority"]} if more.get("priority") else {}),
        **({"runningEstimate": more["estimate"]} if more.get("estimate") else {}),
    }
    labels = {PLACEMENT: more["placement"]} if more.get("placement") else {}
    metadata = {"name": name, "namespace": NAMESPACE, "annotations": annotations, "labels": labels}
    return {"metadata": metadata, "spec": spec}


def hyperjob(name: str, replicated: Object) -> Object:
    """Return a HyperJob of one replicated job."""
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"replicatedJobs": [replicated]}}


async def submit_job(system: System, draw: random.Random) -> None:
    pods = draw.choice((1, 1, 2, 2, 3, 4, 6))
    gang = pods if draw.random() < 0.8 else max(pods - 1, 1)
    seconds = draw.choice((20, 60, 120, 240, 400))
    await system.create(
        kinds.JOBS,
        job(
            f"job-{draw.getrandbits(40):x}",
            draw.choice((*LEAVES, "")),
            pods=pods,
            cpu=draw.choice(("500m", "1", "1", "2", "2", "3")),
            seconds=seconds,
            gpu=draw.choice(("", "", "", "1")),
            minimum=gang,
            fails=draw.random() < 0.1,
            driver=draw.random() < 0.2,
            priority=draw.choice(("", "", "high", "low")),
            estimate=draw.choice(("", "", f"{seconds}s", "1m")),
        ),
    )


async def submit_burst(system: System, draw: random.Random) -> None:
    """More jobs than the clusters can run at once."""
    for _ in range(draw.randint(8, 16)):
        await submit_job(system, draw)


async def submit_rivals(system: System, draw: random.Random) -> None:
    """Equal jobs of different priorities in two queues, more than fit: their order alone decides which runs first."""
    cpu, gpu = draw.choice(("2", "4")), draw.choice(("", "", "1"))
    for _ in range(3):
        for queue in ("urgent", "default"):
            for priority in ("low", "", "high"):
                name = f"job-{draw.getrandbits(40):x}"
                seconds = draw.choice((60, 120))
                made = job(name, queue, pods=1, cpu=cpu, seconds=seconds, gpu=gpu, priority=priority)
                await system.create(kinds.JOBS, made)


async def submit_impossible_job(system: System, draw: random.Random) -> None:
    name = f"{NEVER}{draw.getrandbits(32):x}"
    await system.create(kinds.JOBS, job(name, "default", pods=2, cpu="64", seconds=10))


async def submit_placed_job(system: System, draw: random.Random) -> None:
    """A job that goes to the first of ordered affinities that holds it, or as a copy to each of two clusters."""
    made = job(
        f"{PLACED}{draw.getrandbits(40):x}",
        draw.choice(LEAVES),
        pods=draw.choice((1, 2, 3)),
        cpu=draw.choice(("1", "2")),
        seconds=draw.choice((20, 60, 240)),
        placement=draw.choice([name for name in PLACEMENTS if name]),
        priority=draw.choice(("", "", "high")),
    )
    await system.create(kinds.JOBS, made)


def deployment(name: str, queue: str, *, replicas: int, cpu: str, division: str) -> Object:
    """Return a Deployment in a queue."""
    labels = {PLACEMENT: division, QUEUE_NAME: queue}
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}, "spec": spec}


async def run_deployment(system: System, draw: random.Random) -> None:
    """A Deployment whose replicas Karmada divides, which is scaled perhaps, and deleted after some time."""
    name, queue = f"{SERVICE}{draw.getrandbits(40):x}", draw.choice(LEAVES)
    replicas, cpu, division = draw.choice((1, 2, 4, 8)), draw.choice(("500m", "1", "2")), draw.choice([*DIVISIONS])
    made = deployment(name, queue, replicas=replicas, cpu=cpu, division=division)
    await system.create(kinds.DEPLOYMENTS, made)
    await asyncio.sleep(draw.choice((20, 120, 400)))
    if draw.random() < 0.5:
        await system.merge(kinds.DEPLOYMENTS, (NAMESPACE, name), {"spec": {"replicas": draw.choice((0, 1, 3, 6))}})
        await asyncio.sleep(draw.choice((20, 120)))
    await system.delete(kinds.DEPLOYMENTS, (NAMESPACE, name))


async def run_batch_job(system: System, draw: random.Random) -> None:
    """A Job of Kubernetes, perhaps suspended at first or for some time."""
    name, suspended = f"{BATCH}{draw.getrandbits(40):x}", draw.random() < 0.3
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": draw.choice(("1", "2"))}}}
    pods = draw.choice((1, 2, 4))
    spec = {
        "parallelism": pods,
        "completions": pods,
        "suspend": suspended,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    annotations = {"volcano-global.io/runtime": draw.choice(("20s", "120s", "240s"))}
    annotations |= {"volcano-global.io/outcome": "Failed"} if draw.random() < 0.1 else {}
    labels = {QUEUE_NAME: draw.choice(LEAVES)}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": annotations}
    await system.create(kinds.BATCH_JOBS, {"metadata": metadata, "spec": spec})
    for is_suspended in draw.choice(((False,), (True, False), (False, True, False))):
        await asyncio.sleep(draw.choice((5, 30, 120)))
        await system.merge(kinds.BATCH_JOBS, (NAMESPACE, name), {"spec": {"suspend": is_suspended}})


def trainer(queue: str, *, pods: int, cpu: str) -> Object:
    """Return the replicated job of a HyperJob."""
    worker = job("part", "", pods=pods, cpu=cpu, seconds=60)["spec"]["tasks"][0]
    return {"name": "trainer", "templateSpec": {"queue": queue, "tasks": [{**worker, "name": "worker"}]}}


async def submit_hyperjob(system: System, draw: random.Random) -> None:
    pods, queue = draw.randint(1, 3), draw.choice(LEAVES)
    replicated = trainer(queue, pods=pods, cpu="1")
    if draw.random() < 0.5:
        replicated["replicas"] = draw.randint(1, 3)
    else:
        replicated |= {"replicas": 1, "splitPolicy": {"mode": "auto"}}
    await system.create(kinds.HYPERJOBS, hyperjob(f"hyper-{draw.getrandbits(32):x}", replicated))


def claim(name: str, data: str, kind: Kind, **attributes: str) -> Object:
    """Return the DataSourceClaim of the workload of its name, for one of the data sets."""
    spec: Object = {
        "system": DATA_SYSTEM,
        "dataSourceType": "directory",
        "dataSourceName": data,
        "workload": {"apiVersion": kind.api_version, "kind": kind.name, "name": name},
        "attributes": {f"volcano-global.io/{key.replace('_', '-')}": value for key, value in attributes.items()},
    }
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


async def submit_claimed_workload(system: System, draw: random.Random) -> None:
    """A job or HyperJob with a claim, which is created shortly before it or after it."""
    queue, data = draw.choice(LEAVES), draw.choice(sorted(LOCATIONS))
    if draw.random() < 0.2:
        kind, name = kinds.HYPERJOBS, f"hyper-{draw.getrandbits(32):x}"
        replicated = {**trainer(queue, pods=2, cpu="1"), "replicas": 1}
        made = hyperjob(name, {**replicated, **draw.choice(({}, {"splitPolicy": {"mode": "auto"}}))})
    else:
        kind, name = kinds.JOBS, f"{CLAIMED}{draw.getrandbits(40):x}"
        made = job(name, queue, pods=draw.choice((1, 2)), cpu="1", seconds=draw.choice((20, 120)))
    attributes = draw.choice(({}, {}, {"placement": "Preferred"}, {"on_move": "Requeue"}))
    created = [(kinds.DATA_SOURCE_CLAIMS, claim(name, data, kind, **attributes)), (kind, made)]
    for kind_of, obj in created if draw.random() < 0.8 else reversed(created):
        await system.create(kind_of, obj)
        await asyncio.sleep(draw.choice((0, 0, 2)))


async def delete_job(system: System, draw: random.Random) -> None:
    if key := random_key(system, kinds.JOBS, draw, "job-"):
        await system.delete(kinds.JOBS, key)


async def delete_binding(system: System, draw: random.Random) -> None:
    """Delete a binding; the next change of its job creates another one of the same name."""
    if key := random_key(system, kinds.BINDINGS, draw, "job-"):
        await system.delete(kinds.BINDINGS, key)
        await wait_until(lambda: key not in system.server.objects(kinds.BINDINGS), 30)
        name = key[1].removesuffix("-job")
        await system.merge(kinds.JOBS, (key[0], name), {"metadata": {"annotations": {"touched": "yes"}}})


async def delete_hyperjob(system: System, draw: random.Random) -> None:
    if key := random_key(system, kinds.HYPERJOBS, draw):
        await system.delete(kinds.HYPERJOBS, key)


async def delete_claim(system: System, draw: random.Random) -> None:
    if key := random_key(system, kinds.DATA_SOURCE_CLAIMS, draw):
        await system.delete(kinds.DATA_SOURCE_CLAIMS, key)


async def replace_job(system: System, draw: random.Random) -> None:
    """Delete a job and create one of the same name at once."""
    if key := random_key(system, kinds.JOBS, draw, "job-"):
        replaced = system.server.objects(kinds.JOBS)[key]
        await system.delete(kinds.JOBS, key)
        metadata = {name: replaced["metadata"][name] for name in ("name", "namespace", "annotations")}
        await system.create(kinds.JOBS, {"metadata": metadata, "spec": replaced["spec"]})


async def resize_job(system: System, draw: random.Random) -> None:
    if key := random_key(system, kinds.JOBS, draw, "job-"):
        tasks = system.server.objects(kinds.JOBS)[key]["spec"]["tasks"]
        grown = [{**task, "replicas": max(1, task["replicas"] + draw.choice((-1, 1)))} for task in tasks]
        await system.merge(kinds.JOBS, key, {"spec": {"tasks": grown, "minAvailable": 1}})


async def command(system: System, kind: Kind, key: Key, action: str) -> None:
    """Create a Command about an object."""
    obj = system.server.objects(kind).get(key)
    if obj is None:
        return
    target = {"apiVersion": kind.api_version, "kind": kind.name, "name": key[1], "uid": obj["metadata"]["uid"]}
    name = f"{action.lower()}-{system.random.getrandbits(40):x}"
    metadata = {"name": name, "namespace": key[0] or "default"}
    await system.create(kinds.COMMANDS, {"metadata": metadata, "action": action, "target": target})


async def abort_job(system: System, draw: random.Random) -> None:
    """Abort a job and resume it later, perhaps before it has ended."""
    if key := random_key(system, kinds.JOBS, draw, "job-"):
        await command(system, kinds.JOBS, key, "AbortJob")
        await asyncio.sleep(draw.choice((0, 2, 30, 120)))
        await command(system, kinds.JOBS, key, "ResumeJob")


# -- operators ----------------------------------------------------------------------


async def change_queue(system: System, draw: random.Random) -> None:
    if draw.random() < 0.3:
        parent: Object = {"capability": draw.choice(({"cpu": "10"}, {"cpu": "20"}, QUEUES["research"]["capability"]))}
        await system.merge(kinds.QUEUES, ("", "research"), {"spec": parent})
        return
    name = draw.choice(LEAVES)
    spec: Object = {"weight": draw.randint(1, 4)}
    if draw.random() < 0.4:
        spec["capability"] = draw.choice(({"cpu": "12"}, {"cpu": "20", "nvidia.com/gpu": "4"}, None))
    if draw.random() < 0.3:
        spec["deserved"] = draw.choice(({"cpu": "8"}, None))
    if draw.random() < 0.2:
        spec["priority"] = draw.choice((0, 50, 100))
    await system.merge(kinds.QUEUES, ("", name), {"spec": spec})


async def guarantee_queue(system: System, draw: random.Random) -> None:
    guarantee = draw.choice(({"resource": {"cpu": draw.choice(("4", "14"))}}, None))
    await system.merge(kinds.QUEUES, ("", draw.choice(LEAVES)), {"spec": {"guarantee": guarantee}})


async def close_queue(system: System, draw: random.Random) -> None:
    state = draw.choice(("Closed", "Open"))
    await system.merge(kinds.QUEUES, ("", draw.choice(LEAVES)), {"status": {"state": state}}, "/status")


async def command_queue(system: System, draw: random.Random) -> None:
    """Close or open a queue, with those below it, by a Command."""
    action = draw.choice(("CloseQueue", "OpenQueue"))
    await command(system, kinds.QUEUES, ("", draw.choice((*LEAVES, "research"))), action)


async def delete_queue(system: System, draw: random.Random) -> None:
    await system.delete(kinds.QUEUES, ("", draw.choice(LEAVES[1:])))


async def create_queue(system: System, draw: random.Random) -> None:
    name = draw.choice(LEAVES[1:])
    await system.create(kinds.QUEUES, {"metadata": {"name": name}, "spec": dict(QUEUES[name])})


async def change_class(system: System, draw: random.Random) -> None:
    name = draw.choice(sorted(CLASSES))
    if ("", name) in system.server.objects(kinds.PRIORITY_CLASSES):
        await system.delete(kinds.PRIORITY_CLASSES, ("", name))
    else:
        await system.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": CLASSES[name]})


async def change_configuration(system: System, draw: random.Random) -> None:
    evictions = {"enabled": draw.random() < 0.7, "minRuntime": "30s", "gracePeriod": draw.choice(("0s", "30s"))}
    rare: Object = {
        "ageing": {"after": "1m", "step": 200, "max": draw.choice((1000, 3000))},
        "advanceReservations": [_advance_reservation(system, draw)],
        "nodeShapes": [{"clusters": ["member1"], "nodes": [{"count": 4, "allocatable": {"cpu": "4"}}]}],
        "patches": {"perSecond": 5},
        "locations": {**LOCATIONS, "moving": draw.choice((("member2",), ("member3",), ("unknown",)))},
    }
    system.configure(
        reclaim=evictions,
        preemption=evictions,
        headReservation={"after": draw.choice(("1m", "10m"))},
        backfill={"enabled": draw.random() < 0.8, "onOverrun": draw.choice(("Keep", "Evict"))},
        resize={"action": draw.choice(("Evict", "Report")), "gracePeriod": draw.choice(("0s", "1m"))},
        queueOrder=draw.choice(("PriorityFirst", "FairShareFirst")),
        tenantFairness=draw.choice(("None", "Namespace", "NamespaceFirst")),
        startupTimeout=draw.choice(("5m", "30m")),
        **{name: value for name, value in rare.items() if draw.random() < 0.25},
    )


async def limit_namespace(system: System, draw: random.Random) -> None:
    """Limit the replicas of the namespace by a quota of Karmada for some time."""
    system.quota.limits = requests.amounts({"cpu": draw.choice(("2", "6"))})
    await asyncio.sleep(draw.choice((30, 120, 300)))
    system.quota.limits = {}


async def delete_data_source(system: System, draw: random.Random) -> None:
    if key := random_key(system, kinds.DATA_SOURCES, draw):
        await system.delete(kinds.DATA_SOURCES, key)


def _advance_reservation(system: System, draw: random.Random) -> Object:
    """Return an advance reservation that begins soon: maintenance, or for a queue."""
    begin = system.loop.time() + draw.choice((-60, 60, 300))
    return {
        "name": "planned",
        "clusters": [draw.choice(sorted(CLUSTERS))],
        "from": timestamp(begin),
        "until": timestamp(begin + 600),
        "evict": draw.random() < 0.5,
        "drain": draw.choice(("1m", "24h")),
        **draw.choice(({}, {"queue": draw.choice(LEAVES), "amounts": {"cpu": "6"}}, {"queue": draw.choice(LEAVES)})),
    }


# -- clusters -------------------------------------------------------------------------


async def describe_cluster(system: System, name: str, **annotations: str | None) -> None:
    """Set annotations of a cluster, which the stand-in's members follow."""
    await system.merge(kinds.CLUSTERS, ("", name), {"metadata": {"annotations": annotations}})


async def fill_cluster(system: System, draw: random.Random) -> None:
    name = draw.choice(sorted(CLUSTERS))
    used = json.dumps({"cpu": draw.choice(("2", "6", "8"))})
    await describe_cluster(system, name, **{EXTERNAL: draw.choice((used, used, None))})


async def fail_cluster(system: System, draw: random.Random) -> None:
    state = draw.choice(("False", "Unknown", "True", "True"))
    await describe_cluster(system, draw.choice(sorted(CLUSTERS)), **{READY: state})


async def change_cluster(system: System, draw: random.Random) -> None:
    name = draw.choice(sorted(CLUSTERS))
    capacity = {**CLUSTERS[name], "cpu": draw.choice(("4", "10", CLUSTERS[name]["cpu"]))}
    await describe_cluster(system, name, **{ALLOCATABLE: json.dumps(capacity)})


async def refuse_works(system: System, draw: random.Random) -> None:
    """Let a cluster refuse all Works for some time."""
    name = draw.choice(sorted(CLUSTERS))
    await describe_cluster(system, name, **{REFUSE_WORKS: "its quota is exceeded"})
    await asyncio.sleep(draw.choice((10, 120)))
    await describe_cluster(system, name, **{REFUSE_WORKS: None})


async def leave_cluster(system: System, draw: random.Random) -> None:
    await system.delete(kinds.CLUSTERS, ("", draw.choice(sorted(CLUSTERS))))


async def join_cluster(system: System, draw: random.Random) -> None:
    await create_cluster(system, draw.choice(sorted(CLUSTERS)))


async def create_cluster(system: System, name: str) -> None:
    """Create a cluster with its full capacity; it becomes ready when Karmada has reached it."""
    annotations = {ALLOCATABLE: json.dumps(dict(CLUSTERS[name]))}
    tier, region = propagation.SITES[name]
    metadata = {"name": name, "annotations": annotations, "labels": {propagation.TIER: tier}}
    spec = {"syncMode": "Push", "apiEndpoint": "https://127.0.0.1:1", "region": region}
    await system.create(kinds.CLUSTERS, {"metadata": metadata, "spec": spec})


async def restore_cluster(system: System, name: str, capacity: Mapping[str, str]) -> None:
    """Give a cluster its capacity, and nothing else that uses it; it changes, so that no job avoids it (R1)."""
    await system.merge(kinds.CLUSTERS, ("", name), {"metadata": {"labels": {"restored": str(int(system.loop.time()))}}})
    await propagation.set_taint(system, name, "")
    await propagation.locate_cluster(system, name, propagation.SITES[name])
    usual = dict.fromkeys((EXTERNAL, READY, REFUSE_WORKS))
    await describe_cluster(system, name, **{ALLOCATABLE: json.dumps(dict(capacity)), **usual})


TENANTS: Mapping[str, Action] = {
    "submit-job": submit_job,
    "submit-burst": submit_burst,
    "submit-rivals": submit_rivals,
    "submit-impossible-job": submit_impossible_job,
    "submit-placed-job": submit_placed_job,
    "run-deployment": run_deployment,
    "run-batch-job": run_batch_job,
    "submit-hyperjob": submit_hyperjob,
    "submit-claimed-workload": submit_claimed_workload,
    "delete-claim": delete_claim,
    "delete-job": delete_job,
    "delete-binding": delete_binding,
    "delete-hyperjob": delete_hyperjob,
    "replace-job": replace_job,
    "resize-job": resize_job,
    "abort-job": abort_job,
    "edit-job": edits.edit_job,
    "place-job-otherwise": edits.place_job_otherwise,
    "edit-deployment": edits.edit_deployment,
}
OPERATORS: Mapping[str, Action] = {
    "change-queue": change_queue,
    "guarantee-queue": guarantee_queue,
    "close-queue": close_queue,
    "command-queue": command_queue,
    "delete-queue": delete_queue,
    "create-queue": create_queue,
    "change-class": change_class,
    "change-configuration": change_configuration,
    "limit-namespace": limit_namespace,
    "delete-data-source": delete_data_source,
    "fill-cluster": fill_cluster,
    "fail-cluster": fail_cluster,
    "change-cluster": change_cluster,
    "refuse-works": refuse_works,
    "leave-cluster": leave_cluster,
    "join-cluster": join_cluster,
    "change-policy": propagation.change_policy,
    "fail-over": propagation.fail_over,
    "delete-policy": propagation.delete_policy,
    "preempt-policy": propagation.preempt_policy,
    "move-cluster": propagation.move_cluster,
    "taint-cluster": propagation.taint_cluster,
}
_RATES: Mapping[str, float] = {
    "submit-job": 60,
    "submit-burst": 5,
    "submit-rivals": 1,
    "submit-impossible-job": 3,
    "submit-hyperjob": 6,
    "submit-claimed-workload": 6,
    "delete-claim": 3,
    "delete-job": 6,
    "delete-binding": 3,
    "delete-hyperjob": 3,
    "replace-job": 3,
    "resize-job": 4,
    "submit-placed-job": 6,
    "run-deployment": 12,
    "run-batch-job": 10,
    "abort-job": 4,
    "edit-job": 6,
    "place-job-otherwise": 3,
    "edit-deployment": 6,
}
"""Operations of tenants per hour of activity, which is half of the time."""
_RATE_OF_OPERATORS = 2.0
_RATES_OF_CALM_HOURS: Mapping[str, float] = {
    **dict.fromkeys(OPERATORS, 4.0),
    # The order by priority (I6) is not judged while fair shares matter.
    "change-configuration": 1.2,
    "fill-cluster": 20,
    "submit-rivals": 10,
}


def times(draw: random.Random, per_hour: float, begin: float, end: float) -> Sequence[float]:
    """Return random times between *begin* and *end*, in order."""
    moments, at = [], begin
    while (at := at + draw.expovariate(per_hour / 3600)) < end:
        moments.append(round(at, 3))
    return moments


def script(draw: random.Random, begin: float, end: float, *, calm: bool) -> list[Operation]:
    """Return the operations between *begin* and *end*; in a *calm* hour, with its strict judge, operators do more."""
    rates = {**_RATES, **dict.fromkeys(OPERATORS, _RATE_OF_OPERATORS), "change-configuration": 6.0}
    rates |= _RATES_OF_CALM_HOURS if calm else {}
    return [
        Operation(at, name, draw.getrandbits(48))
        for name, per_hour in rates.items()
        for at in times(draw, per_hour, begin, end)
    ]
