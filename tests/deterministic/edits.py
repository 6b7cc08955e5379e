"""What tenants change of workloads that wait or run."""

import random

from tests.deterministic import kinds
from tests.deterministic.objects import Key, Kind, Object
from tests.deterministic.propagation import PLACEMENT, PLACEMENTS
from tests.deterministic.system import System
from tests.rig.binding_state import parse_binding
from tests.rig.observed_usage import QUEUE_NAME

_MOST_REPLICAS = 6


def random_key(system: System, kind: Kind, draw: random.Random, prefix: str = "") -> Key | None:
    """Return the key of a random object whose name begins with *prefix*."""
    keys = sorted(key for key in system.server.objects(kind) if key[1].startswith(prefix))
    return draw.choice(keys) if keys else None


async def edit_job(system: System, draw: random.Random) -> None:
    """Change what Volcano lets change of a job: its priority, its sizes, labels and annotations."""
    if (key := random_key(system, kinds.JOBS, draw, "job-")) is None:
        return
    tasks = system.server.objects(kinds.JOBS)[key]["spec"]["tasks"]
    sizes = [draw.randint(0, _MOST_REPLICAS) for _ in tasks]
    resized = [
        {**task, "replicas": size, "minAvailable": draw.randint(0, size)}
        for task, size in zip(tasks, sizes, strict=True)
    ]
    changes: tuple[Object, ...] = (
        {"spec": {"priorityClassName": draw.choice(("high", "low", "unknown", None))}},
        {"spec": {"tasks": resized, "minAvailable": draw.randint(0, sum(sizes))}},
        {"spec": {"minAvailable": draw.randint(0, sum(task["replicas"] for task in tasks))}},
        {"metadata": {"annotations": {"example.com/note": f"{draw.getrandbits(16):x}"}}},
    )
    await system.merge(kinds.JOBS, key, draw.choice(changes))


async def place_job_otherwise(system: System, draw: random.Random) -> None:
    """Change the label of a job that chooses its policy, which Karmada then replaces."""
    if key := random_key(system, kinds.JOBS, draw, "placed-"):
        await system.merge(kinds.JOBS, key, {"metadata": {"labels": {PLACEMENT: draw.choice([*PLACEMENTS])}}})


async def edit_deployment(system: System, draw: random.Random) -> None:
    """Change the size of a Deployment or of its pods, or its queue, which stays that of the beginning."""
    if (key := random_key(system, kinds.DEPLOYMENTS, draw, "service-")) is None:
        return
    template = system.server.objects(kinds.DEPLOYMENTS)[key]["spec"]["template"]
    container = template["spec"]["containers"][0]
    requests = {**container["resources"]["requests"], "cpu": draw.choice(("250m", "1", "3"))}
    changed = {**template, "spec": {"containers": [{**container, "resources": {"requests": requests}}]}}
    # One that loses its queue before it has a record is not gated (Q6), so its queue is only replaced until then.
    binding = system.server.objects(kinds.BINDINGS).get((key[0], f"{key[1]}-deployment"))
    is_fixed = binding is not None and bool(parse_binding(binding).record.get("queue"))
    queues = ("default", "urgent", "unknown", None if is_fixed else "default")
    changes: tuple[Object, ...] = (
        {"spec": {"replicas": draw.randint(0, 2 * _MOST_REPLICAS)}},
        {"spec": {"template": changed}},
        {"metadata": {"labels": {QUEUE_NAME: draw.choice(queues)}}},
    )
    await system.merge(kinds.DEPLOYMENTS, key, draw.choice(changes))
