"""What other clients do to bindings, jobs, HyperJobs and queues, and what must follow.

Only in hours without faults, where the result is certain: an action reports what the judge cannot see in the history.
"""

import asyncio
import random
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Final

from tests.deterministic import kinds
from tests.deterministic.objects import Key, Object
from tests.deterministic.operations import (
    CLAIMED,
    CLUSTERS,
    HOSTILE,
    READY,
    Action,
    Operation,
    claim,
    describe_cluster,
    hyperjob,
    job,
    times,
    trainer,
)
from tests.deterministic.system import NAMESPACE, System
from tests.rig.binding_state import BindingState, parse_binding

_RATE: Final = 10.0
"""Actions of each kind per hour of activity."""
_RATE_OF_LARGE_ACTIONS: Final = 5.0
"""The same of actions that need most of the capacity."""
_REACTION_SECONDS: Final = 20
"""For how long the controllers may leave a change as it is."""
_FINALIZER: Final = "example.com/wait"


def _bindings(system: System) -> Iterator[tuple[Key, BindingState]]:
    """Yield the bindings of the tenants' jobs, by name."""
    for key, obj in sorted(system.server.objects(kinds.BINDINGS).items()):
        if key[1].startswith("job-"):
            yield key, parse_binding(obj)


def _pending(system: System) -> list[tuple[Key, BindingState]]:
    return [(key, binding) for key, binding in _bindings(system) if binding.suspended and not binding.clusters]


async def _change(system: System, key: Key, before: BindingState, spec: Object) -> BindingState | None:
    """Change the spec of a binding; return it as the controllers leave it, as ``_now`` does."""
    await system.merge(kinds.BINDINGS, key, {"spec": spec})
    await asyncio.sleep(_REACTION_SECONDS)
    return _now(system, key, before)


def _now(system: System, key: Key, before: BindingState) -> BindingState | None:
    """Return a binding as it is now, ``None`` where it was deleted or replaced."""
    obj = system.server.objects(kinds.BINDINGS).get(key)
    current = parse_binding(obj) if obj is not None else None
    return current if current is not None and current.uid == before.uid else None


async def suspend_admitted_binding(system: System, draw: random.Random) -> None:
    """Suspend a binding that was admitted and is placed; the controller resumes it."""
    placed = [
        (key, binding)
        for key, binding in _bindings(system)
        if binding.admitted and binding.clusters and binding.running
    ]
    if not placed:
        return
    key, before = draw.choice(placed)
    after = await _change(system, key, before, {"suspension": {"scheduling": True}})
    if after is not None and after.suspended and after.clusters and not after.is_finished and after.record["charge"]:
        system.failures.append(f"I4 the admitted job {key[1]} stays suspended")


async def place_suspended_binding(system: System, draw: random.Random) -> None:
    """Place a binding that was not admitted; the controller removes its clusters."""
    pending = _pending(system)
    if not pending:
        return
    key, before = draw.choice(pending)
    cluster = draw.choice(sorted(CLUSTERS))
    after = await _change(system, key, before, {"clusters": [{"name": cluster}]})
    if after is not None and after.suspended and after.clusters and not after.is_finished:
        system.failures.append(f"I3 the pending job {key[1]} stays placed on {cluster}")


async def suspend_dispatching(system: System, draw: random.Random) -> None:
    """Suspend the dispatching of a pending binding for some time; the field stays in the binding."""
    pending = _pending(system)
    if not pending:
        return
    key, _ = draw.choice(pending)
    await system.merge(kinds.BINDINGS, key, {"spec": {"suspension": {"dispatching": True}}})
    await asyncio.sleep(draw.choice((10, 60)))
    await system.merge(kinds.BINDINGS, key, {"spec": {"suspension": {"dispatching": False}}})


async def create_binding(system: System, draw: random.Random) -> None:
    """Create a binding that is placed already; the webhook suspends it, and leaves its other fields."""
    name = f"{HOSTILE}{draw.getrandbits(32):x}"
    template = {"apiVersion": kinds.JOBS.api_version, "kind": "Job", "namespace": NAMESPACE, "name": name, "uid": name}
    spec: Object = {"resource": template, "clusters": [{"name": "member1"}], "suspension": {"dispatching": True}}
    response = await system.create(
        kinds.BINDINGS, {"metadata": {"name": f"{name}-job", "namespace": NAMESPACE}, "spec": spec}
    )
    if response.status != HTTPStatus.CREATED:
        return
    created = response.body["spec"]
    if created["suspension"] != {"dispatching": True, "scheduling": True} or created.get("clusters"):
        system.failures.append(f"I3 the webhook made {created['suspension']}, {created.get('clusters')} of {spec}")


async def change_immutable_field(system: System, draw: random.Random) -> None:
    """Change a field of a job that Volcano does not let change; the webhook refuses it."""
    jobs = sorted(key for key in system.server.objects(kinds.JOBS) if key[1].startswith("job-"))
    if not jobs:
        return
    key = draw.choice(jobs)
    spec = system.server.objects(kinds.JOBS)[key]["spec"]
    renamed = [{**task, "name": f"{task['name']}-2"} for task in spec["tasks"]]
    patch: Object = draw.choice(({"queue": "urgent-2"}, {"tasks": renamed}, {"runningEstimate": "7s"}, {"maxRetry": 9}))
    response = await system.merge(kinds.JOBS, key, {"spec": patch})
    if response.status == HTTPStatus.OK and response.body["spec"] != spec:
        system.failures.append(f"I2 {sorted(patch)} of job {key[1]} was changed")


async def occupy_part_name(system: System, draw: random.Random) -> None:
    """Create a job with the name of a HyperJob's part, and then the HyperJob, which must not touch the job."""
    name = f"hyper-{draw.getrandbits(32):x}"
    key = NAMESPACE, f"{name}-trainer-0"
    response = await system.create(kinds.JOBS, job(key[1], "default", pods=1, cpu="1", seconds=60))
    await system.create(kinds.HYPERJOBS, hyperjob(name, trainer("default", pods=1, cpu="1")))
    await asyncio.sleep(_REACTION_SECONDS)
    _expect_unchanged(system, key, response.body)
    await system.delete(kinds.HYPERJOBS, (NAMESPACE, name))
    await asyncio.sleep(_REACTION_SECONDS)
    _expect_unchanged(system, key, response.body)
    await system.delete(kinds.JOBS, key)


def _expect_unchanged(system: System, key: Key, created: Object) -> None:
    current = system.server.objects(kinds.JOBS).get(key)
    if current is None or current["metadata"].get("ownerReferences") or current["spec"] != created["spec"]:
        system.failures.append(f"I2 job {key[1]}, which has no owner, was changed or deleted")


async def submit_large_hyperjob(system: System, draw: random.Random) -> None:
    """Submit a HyperJob of three parts, which are admitted together or not at all."""
    name = f"hyper-{draw.getrandbits(32):x}"
    replicated = trainer("default", pods=3, cpu=draw.choice(("2", "3")))
    made = hyperjob(name, {**replicated, "replicas": 3})
    await system.create(kinds.HYPERJOBS, {**made, "spec": {**made["spec"], "minAvailable": 3}})
    partial = 0
    for _ in range(24):
        await asyncio.sleep(5)
        parts = [
            parse_binding(obj)
            for key, obj in system.server.objects(kinds.BINDINGS).items()
            if key[1].startswith(f"{name}-trainer-")
        ]
        admitted = sum(part.admitted for part in parts)
        if admitted == len(parts) and parts:
            break
        partial = partial + 1 if admitted else 0
        if partial > _REACTION_SECONDS // 5:
            system.failures.append(f"I5 only {admitted} of 3 parts of HyperJob {name} are admitted")
            break
    await asyncio.sleep(90)
    await system.delete(kinds.HYPERJOBS, (NAMESPACE, name))


async def expire_part(system: System, draw: random.Random) -> None:
    """Delete a Job that has completed of a HyperJob, as a TTL does; it is not created again."""
    jobs = system.server.objects(kinds.JOBS)
    ended = [
        (key[0], part["name"])
        for key, obj in sorted(system.server.objects(kinds.HYPERJOBS).items())
        for part in obj.get("status", {}).get("split", {}).get("parts", ())
        if part["phase"] == "Completed" and (key[0], part["name"]) in jobs
    ]
    if not ended:
        return
    key = draw.choice(ended)
    await system.delete(kinds.JOBS, key)
    await asyncio.sleep(_REACTION_SECONDS)
    if key in system.server.objects(kinds.JOBS):
        system.failures.append(f"I5 job {key[1]} was created again after it had completed")


async def submit_job_with_data(system: System, draw: random.Random) -> None:
    """Submit a job whose data are in one cluster; it is admitted there only, unless its claim is deleted."""
    name, cluster = f"{CLAIMED}{draw.getrandbits(40):x}", draw.choice(sorted(CLUSTERS))
    await system.create(kinds.DATA_SOURCE_CLAIMS, claim(name, f"only-{cluster}", kinds.JOBS))
    await system.create(kinds.JOBS, job(name, "default", pods=1, cpu="1", seconds=30))
    for _ in range(60):
        await asyncio.sleep(1)
        obj = system.server.objects(kinds.BINDINGS).get((NAMESPACE, f"{name}-job"))
        binding = parse_binding(obj) if obj is not None else None
        if binding is not None and binding.admitted:
            is_claimed = (NAMESPACE, name) in system.server.objects(kinds.DATA_SOURCE_CLAIMS)
            if is_claimed and binding.record["clusters"] != [cluster]:
                system.failures.append(f"C6 job {name} was admitted to {binding.record['clusters']}, not {cluster}")
            break
    await system.delete(kinds.DATA_SOURCE_CLAIMS, (NAMESPACE, name))


async def delete_with_finalizer(system: System, draw: random.Random) -> None:
    """Delete a pending job that a finalizer keeps for some time; it is not admitted meanwhile."""
    pending = _pending(system)
    if not pending:
        return
    key, before = draw.choice(pending)
    await system.merge(kinds.JOBS, before.job, {"metadata": {"finalizers": [_FINALIZER]}})
    await system.delete(kinds.JOBS, before.job)
    await asyncio.sleep(_REACTION_SECONDS)
    then = _now(system, key, before)
    if then is not None and then.suspended:
        await asyncio.sleep(60)
        after = _now(system, key, before)
        if after is not None and not after.suspended:
            system.failures.append(f"I2 job {before.job[1]} was admitted, though it is being deleted")
    await system.merge(kinds.JOBS, before.job, {"metadata": {"finalizers": None}})


# -- queues and clusters that are full, or not ready --------------------------------


async def _submit_many(system: System, draw: random.Random, queues: tuple[str, ...], count: int) -> None:
    """Submit *count* jobs of two CPUs."""
    for _ in range(count):
        name = f"job-{draw.getrandbits(40):x}"
        await system.create(kinds.JOBS, job(name, draw.choice(queues), pods=1, cpu="2", seconds=60))


async def fill_parent_queue(system: System, draw: random.Random) -> None:
    """Submit more to the children of a queue than it may hold."""
    for name, cpu in (("vision", "8"), ("speech", "8"), ("research", "10")):
        await system.merge(kinds.QUEUES, ("", name), {"spec": {"capability": {"cpu": cpu}}})
    await asyncio.sleep(_REACTION_SECONDS)
    await _submit_many(system, draw, ("vision", "speech"), 10)


async def fill_guarantee(system: System, draw: random.Random) -> None:
    """Submit more than the guarantee of another queue leaves."""
    spec: Object = {"guarantee": {"resource": {"cpu": "12"}}, "deserved": None, "capability": None}
    await system.merge(kinds.QUEUES, ("", "urgent"), {"spec": spec})
    await asyncio.sleep(_REACTION_SECONDS)
    await _submit_many(system, draw, ("default",), 22)
    await asyncio.sleep(60)
    await system.merge(kinds.QUEUES, ("", "urgent"), {"spec": {"guarantee": None}})


async def submit_to_unready_cluster(system: System, draw: random.Random) -> None:
    """Submit jobs while a cluster is not ready."""
    name = draw.choice(sorted(CLUSTERS))
    await describe_cluster(system, name, **{READY: draw.choice(("False", "Unknown"))})
    await asyncio.sleep(_REACTION_SECONDS)
    await _submit_many(system, draw, ("default", "urgent"), 16)
    await asyncio.sleep(30)
    await describe_cluster(system, name, **{READY: None})


ACTIONS: Mapping[str, Action] = {
    "suspend-admitted-binding": suspend_admitted_binding,
    "place-suspended-binding": place_suspended_binding,
    "suspend-dispatching": suspend_dispatching,
    "create-binding": create_binding,
    "change-immutable-field": change_immutable_field,
    "occupy-part-name": occupy_part_name,
    "submit-large-hyperjob": submit_large_hyperjob,
    "expire-part": expire_part,
    "submit-job-with-data": submit_job_with_data,
    "delete-with-finalizer": delete_with_finalizer,
    "fill-parent-queue": fill_parent_queue,
    "fill-guarantee": fill_guarantee,
    "submit-to-unready-cluster": submit_to_unready_cluster,
}
_LARGE: Final = {"fill-parent-queue", "fill-guarantee", "submit-to-unready-cluster", "submit-large-hyperjob"}


def script(draw: random.Random, begin: float, end: float) -> list[Operation]:
    """Return the actions between *begin* and *end*."""
    return [
        Operation(at, name, draw.getrandbits(48))
        for name in ACTIONS
        for at in times(draw, _RATE_OF_LARGE_ACTIONS if name in _LARGE else _RATE, begin, end)
    ]
