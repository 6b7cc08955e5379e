"""Parses manifests into pods, gang minimum and run time for member clusters.

The gang minimum is computed independently of the engine, which the stand-in is used to test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controller.engine.state.requests import pod_request
from controller.engine.state.resources import Resources
from localup.karmada.durations import seconds_in
from localup.karmada.kinds import BATCH_JOB, VOLCANO_JOB, WORKLOADS, is_a
from localup.karmada.objects import Object, annotations_of, spec_of
from localup.karmada.pods import pod_template

RUN_TIME: Final = "volcano-global.io/runtime"
OUTCOME: Final = "volcano-global.io/outcome"
FAILED: Final = "Failed"


@dataclass(frozen=True, slots=True)
class Task:
    """Identical pods: their number, and how many must start together with the rest of the gang."""

    pod: Resources
    count: int
    gang_minimum: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """Part of a manifest that a member cluster needs."""

    tasks: tuple[Task, ...]
    run_seconds: float | None = None
    """Run time in seconds; ``None`` if it runs until it is removed."""
    fails: bool = False


def parse_workload(manifest: Object, *, run_time: float) -> Workload:
    """Parse a manifest; *run_time* applies to jobs without a run time annotation.

    Raises:
        ValueError: A quantity is invalid.
    """
    if not any(is_a(manifest, kind) for kind in WORKLOADS):
        return Workload(())
    lasts = _run_time(manifest, run_time)
    fails = annotations_of(manifest).get(OUTCOME) == FAILED
    spec = spec_of(manifest)
    if is_a(manifest, VOLCANO_JOB):
        return Workload(_volcano_tasks(spec.get("tasks") or (), int(spec.get("minAvailable", 0))), lasts, fails)
    pod = pod_request(pod_template(spec.get("template") or {}))
    if is_a(manifest, BATCH_JOB):
        return Workload((Task(pod, int(spec.get("parallelism", 1))),), lasts, fails)
    return Workload((Task(pod, int(spec.get("replicas", 1))),))


def _run_time(manifest: Object, default: float) -> float:
    """Return the seconds of the annotation; an invalid duration is ignored."""
    try:
        return seconds_in(annotations_of(manifest)[RUN_TIME])
    except (KeyError, ValueError):
        return default


def min_available(manifest: Object) -> int:
    """Return `minAvailable` of a Volcano Job with the defaults of Volcano's webhook."""
    spec = spec_of(manifest)
    return int(spec.get("minAvailable", 0)) or sum(_task_minimum(task) for task in spec.get("tasks") or ())


def _volcano_tasks(tasks: Sequence[Object], wanted: int) -> tuple[Task, ...]:
    """Divide the gang minimum: task minimums if all of them fit, then the remaining pods in task order."""
    least = [_task_minimum(item) for item in tasks]
    wanted = wanted or sum(least)
    together = least if wanted >= sum(least) else [0] * len(tasks)
    left = wanted - sum(together)
    read = []
    for task, minimum in zip(tasks, together, strict=True):
        count = int(task.get("replicas", 0))
        more = min(left, count - minimum)
        left -= more
        read.append(Task(pod_request(pod_template(task.get("template") or {})), count, minimum + more))
    return tuple(read)


def _task_minimum(task: Object) -> int:
    replicas = int(task.get("replicas", 0))
    return min(int(task.get("minAvailable", replicas)), replicas)
