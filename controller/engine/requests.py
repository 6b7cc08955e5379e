"""What a job asks for: the whole of it, and what must be placeable at once.

Counts pods as the member's API server and Volcano count them (D2-D4), from
the template alone. Where a job goes and what it is charged is not known here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from controller.engine.resources import (
    CPU,
    EMPTY,
    MEMORY,
    MILLI,
    PODS,
    Resources,
    add,
    clamp_non_negative,
    elementwise_max,
    positive,
    scale,
    total,
)

_HUGE_PAGES = "hugepages-"


@dataclass(frozen=True, slots=True)
class Container:
    """The resources of one container."""

    requests: Resources = EMPTY
    limits: Resources = EMPTY
    restarts: bool = False
    """An init container with ``restartPolicy: Always``: a sidecar that stays."""

    @property
    def effective_requests(self) -> Resources:
        """Return what it asks for: its requests, and its limits where a request is missing.

        A request of zero is one, so its limit does not count.
        """
        return clamp_non_negative({**self.limits, **self.requests})


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """What a pod template says about resources."""

    containers: tuple[Container, ...] = ()
    init: tuple[Container, ...] = ()
    """The init containers, in the order in which they start."""
    overhead: Resources = EMPTY
    requests: Resources = EMPTY
    """Pod-level requests (``spec.resources``)."""
    limits: Resources = EMPTY
    """Pod-level limits."""
    priority_class: str = ""
    node_claim: str | None = ""
    """What the pod asks of its node, as JSON; empty where it asks nothing, ``None`` where that is unreadable."""
    claims: tuple[str, ...] = ()
    """The ResourceClaimTemplates whose devices each pod gets; what they amount to is added before pods are counted."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """Equal pods of one workload; hashable, so that it can be part of a key."""

    requests: tuple[tuple[str, int], ...]
    """Of one pod, by resource name."""
    count: int
    minimum: int
    """How many of them belong to the gang minimum (D4)."""
    node_claim: str | None = ""
    """What they ask of a node, as JSON; empty where nothing, or nobody asks; ``None`` where it is not known."""

    @property
    def amounts(self) -> Resources:
        """Return the request of one pod."""
        return dict(self.requests)


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a Volcano Job."""

    name: str
    replicas: int
    pod: PodTemplate
    minimum: int | None = None
    """``minAvailable``; ``None`` where it is not set."""
    partition_minimum: int = 0
    """``minPartitions`` times ``partitionSize`` of its partition policy."""

    @property
    def count(self) -> int:
        """Return how many pods it has."""
        return max(self.replicas, 0)

    @property
    def effective_minimum(self) -> int:
        """Return its minimum with Volcano's defaults (D3), at most its replicas."""
        default = self.partition_minimum if self.partition_minimum > 0 else self.replicas
        return max(min(default if self.minimum is None else self.minimum, self.count), 0)


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """What a Volcano Job's template says about its size."""

    tasks: tuple[Task, ...]
    min_available: int = 0
    """0 where it is not set."""

    @property
    def gang_pods(self) -> int:
        """Return how many pods must start together: ``minAvailable``, or the sum of the task minimums."""
        return self.min_available if self.min_available > 0 else sum(task.effective_minimum for task in self.tasks)


def pod_request(pod: PodTemplate) -> Resources:
    """Return what one pod asks for, itself included as one of ``pods`` (D2).

    Negative amounts, which no API server takes, count as zero.
    """
    amounts = add(_with_pod_level(pod, _containers(pod)), clamp_non_negative(pod.overhead))
    return positive({**amounts, PODS: MILLI})


def pod_requests(job: JobTemplate) -> tuple[Resources, ...]:
    """Return the distinct requests of the job's pods, in task order."""
    distinct: list[Resources] = []
    for task in job.tasks:
        request = pod_request(task.pod)
        if task.count and request not in distinct:
            distinct.append(request)
    return tuple(distinct)


def total_requests(job: JobTemplate) -> Resources:
    """Return what all pods of the job ask for together (D3)."""
    return positive(total(scale(pod_request(task.pod), task.count) for task in job.tasks))


def gang_minimum(job: JobTemplate, priority_of: Callable[[str], int]) -> Resources:
    """Return what must be placeable at once for the job to start (D4).

    *priority_of* gives the value of a PriorityClass, 0 for one that does not
    exist; a task without a class counts as 0, whatever the cluster's default.
    """
    return positive(total(scale(pod_request(task.pod), count) for task, count in _gang(job, priority_of)))


def pod_sets(
    job: JobTemplate, priority_of: Callable[[str], int], *, with_node_claims: bool = False
) -> tuple[PodSet, ...]:
    """Return the pods of the job by request, in Volcano's order of tasks; counted as ``gang_minimum`` counts them.

    *with_node_claims* keeps pods apart that ask for different nodes.
    """
    counts: dict[tuple[tuple[tuple[str, int], ...], str | None], tuple[int, int]] = {}
    for task, minimum in _gang(job, priority_of):
        key = tuple(sorted(pod_request(task.pod).items())), task.pod.node_claim if with_node_claims else ""
        before = counts.get(key, (0, 0))
        counts[key] = before[0] + task.count, before[1] + minimum
    return tuple(
        PodSet(request, count, minimum, claim) for (request, claim), (count, minimum) in counts.items() if count
    )


def _gang(job: JobTemplate, priority_of: Callable[[str], int]) -> Iterator[tuple[Task, int]]:
    """Yield how many pods of each task belong to those that start together, in Volcano's order of tasks.

    The task minimums come first where there are as many or more; otherwise
    they mean nothing and pods are taken task by task.
    """

    def priority(task: Task) -> int:
        return priority_of(task.pod.priority_class) if task.pod.priority_class else 0

    tasks, wanted = sorted(job.tasks, key=priority, reverse=True), job.gang_pods
    minimums = sum(task.effective_minimum for task in tasks)
    in_force = wanted >= minimums
    left = wanted - minimums if in_force else wanted
    for task in tasks:
        count = task.effective_minimum if in_force else 0
        extra = min(left, task.count - count)
        left -= extra
        yield task, count + extra


def _containers(pod: PodTemplate) -> Resources:
    """Return the most that the containers ask for at any time of the pod's life.

    While an init container runs, the sidecars started before it run too.
    """
    running = total(container.effective_requests for container in pod.containers)
    if not pod.init:
        return running
    sidecars: Resources = EMPTY
    starting: Resources = EMPTY
    for container in pod.init:
        beside = add(sidecars, container.effective_requests)
        starting = elementwise_max(starting, beside)
        if container.restarts:
            sidecars = beside
    return elementwise_max(add(running, sidecars), starting)


def _with_pod_level(pod: PodTemplate, containers: Resources) -> Resources:
    """Return *containers* overruled by the pod-level resources, with their Kubernetes defaults.

    A missing pod-level request is what the containers ask for; the pod-level
    limit where they ask for nothing, and always for huge pages, of which no
    more can be used than is asked for.
    """
    if not pod.limits and not pod.requests:
        return containers
    limits = {
        name: limit for name, limit in pod.limits.items() if name not in containers or name.startswith(_HUGE_PAGES)
    }
    overruling = {**limits, **pod.requests}
    return {**containers, **clamp_non_negative({name: overruling[name] for name in overruling if _is_pod_level(name)})}


def _is_pod_level(resource: str) -> bool:
    return resource in {CPU, MEMORY} or resource.startswith(_HUGE_PAGES)
