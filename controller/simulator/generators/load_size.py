"""How large a load is to be, and the clusters that fit it."""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.engine.clusters import Cluster
from controller.engine.resources import Resources, scale, total
from controller.simulator.generators.load import Job, empty_cluster

_MIN_DURATION = 3_600_000


@dataclass(frozen=True, slots=True)
class LoadSize:
    """What the user asks for; *load* is what comes, in percent of what the clusters can run meanwhile."""

    jobs: int = 500
    queues: int = 6
    clusters: int = 4
    load: int = 120
    seed: int = 0


def clusters_for(jobs: Sequence[Job], node: Resources, size: LoadSize) -> tuple[Cluster, ...]:
    """Return clusters of equal nodes for *jobs* to load as *size* says; the first one holds the largest job.

    What runs longer than jobs come counts as long as they come.
    """
    span = max(jobs[-1].at - jobs[0].at, _MIN_DURATION)
    asked = [total(scale(dict(task.request), task.replicas) for task in job.tasks) for job in jobs]
    work = total(scale(each, min(job.runtime, span)) for each, job in zip(asked, jobs, strict=True))
    wanted = max(_divide_up(work.get(name, 0) * 100, span * size.load * node[name]) for name in node)
    least = max(_divide_up(each.get(name, 0), node[name]) for each in asked for name in node)
    first = max(_divide_up(wanted, size.clusters), least)
    others = size.clusters - 1
    counts = [first, *(max((wanted - first + place) // others, 1) for place in reversed(range(others)))]
    return tuple(empty_cluster(f"member{place}", scale(node, count)) for place, count in enumerate(counts, start=1))


def _divide_up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
