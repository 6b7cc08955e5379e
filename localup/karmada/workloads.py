"""What a manifest asks of the member cluster that is to run it: pods, how many of them together, and for how long.

Pure. Which pods start together is counted here once more, on purpose: the
engine's count is what the stand-in is there to test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controller.engine.requests import pod_request
from controller.engine.resources import Resources
from localup.karmada.durations import seconds_in
from localup.karmada.kinds import BATCH_JOB, VOLCANO_JOB, WORKLOADS, is_a
from localup.karmada.objects import Object, annotations_of, spec_of
from localup.karmada.pods import pod_template

RUN_TIME: Final = "volcano-global.io/runtime"
OUTCOME: Final = "volcano-global.io/outcome"
FAILED: Final = "Failed"


@dataclass(frozen=True, slots=True)
class Task:
    """Equal pods: how many there are, and how many of them must start with the others of the job."""

    pod: Resources
    count: int
    gang_minimum: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """All that a member cluster needs to know of a manifest."""

    tasks: tuple[Task, ...]
    run_seconds: float | None = None
    """Seconds from the start to the end; ``None`` for what runs until it is removed."""
    fails: bool = False


def parse_workload(manifest: Object, *, run_time: float) -> Workload:
    """Read a manifest; *run_time* is how long a job lasts that does not say so itself.

    Raises:
        ValueError: An amount in it cannot be read.
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
    """Return the seconds of its annotation; a text that is no duration is ignored, as a real cluster does."""
    try:
        return seconds_in(annotations_of(manifest)[RUN_TIME])
    except (KeyError, ValueError):
        return default


def min_available(manifest: Object) -> int:
    """Return how many pods of a Volcano Job must run for it to run, with the defaults of Volcano's webhook."""
    spec = spec_of(manifest)
    return int(spec.get("minAvailable", 0)) or sum(_task_minimum(task) for task in spec.get("tasks") or ())


def _volcano_tasks(tasks: Sequence[Object], wanted: int) -> tuple[Task, ...]:
    """Count the gang: every task's minimum where all of them fit into *wanted*, then pod by pod in task order."""
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
