"""Size of a load, and the clusters for it."""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.engine.state.clusters import Cluster
from controller.engine.state.resources import Resources, scale, total
from controller.simulator.generators.load import GeneratedJob, empty_cluster

_MIN_DURATION = 3_600_000


@dataclass(frozen=True, slots=True)
class LoadSize:
    """Requested size; *load* is the work in percent of the clusters' capacity during the submissions."""

    jobs: int = 500
    queues: int = 6
    clusters: int = 4
    load: int = 120
    seed: int = 0


def clusters_for(jobs: Sequence[GeneratedJob], node: Resources, size: LoadSize) -> tuple[Cluster, ...]:
    """Return clusters of equal nodes so that *jobs* have the load of *size*; the first fits the largest job.

    Run times count up to the time between the first and the last submission.
    """
    duration = max(jobs[-1].at - jobs[0].at, _MIN_DURATION)
    requests = [total(scale(dict(task.request), task.replicas) for task in job.tasks) for job in jobs]
    work = total(scale(requested, min(job.runtime, duration)) for requested, job in zip(requests, jobs, strict=True))
    nodes = max(_divide_up(work.get(name, 0) * 100, duration * size.load * node[name]) for name in node)
    least = max(_divide_up(requested.get(name, 0), node[name]) for requested in requests for name in node)
    first = max(_divide_up(nodes, size.clusters), least)
    others = size.clusters - 1
    counts = [first, *(max((nodes - first + index) // others, 1) for index in reversed(range(others)))]
    return tuple(empty_cluster(f"member{index}", scale(node, count)) for index, count in enumerate(counts, start=1))


def _divide_up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
