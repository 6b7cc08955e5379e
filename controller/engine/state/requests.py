"""Computes what a job requests in total, and its gang minimum.

Counts pods as the member's API server and Volcano do (D2-D4), from the
template alone, independent of clusters and charges.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from controller.engine.state.resources import (
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
#: Number of containers, and of init containers, that are kept of a pod; more are counted in sum.
_MAX_CONTAINERS = 16


@dataclass(frozen=True, slots=True)
class Container:
    """The resources of one container."""

    requests: Resources = EMPTY
    limits: Resources = EMPTY
    restarts: bool = False
    """An init container with ``restartPolicy: Always``: a sidecar that keeps running."""

    @property
    def effective_requests(self) -> Resources:
        """Return its requests, with the limit where a request is missing.

        A request of zero is set, so its limit does not count.
        """
        return clamp_non_negative({**self.limits, **self.requests})


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """The resources of a pod template."""

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
    """The pod's node constraints, as JSON; empty where it has none, ``None`` where they are unreadable."""
    claims: tuple[str, ...] = ()
    """The ResourceClaimTemplates for each pod; their devices are added before pods are counted."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """Equal pods of one workload; hashable, so that it can be part of a key."""

    requests: tuple[tuple[str, int], ...]
    """The requests of one pod, by resource name."""
    count: int
    minimum: int
    """How many of the pods belong to the gang minimum (D4)."""
    node_claim: str | None = ""
    """Their node constraints, as JSON; empty where there are none or they are not needed; ``None`` where unknown."""

    @property
    def amounts(self) -> Resources:
        """Return the requests of one pod."""
        return dict(self.requests)


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a Volcano Job."""

    name: str
    replicas: int
    pod: PodTemplate
    minimum: int | None = None
    """Its part of the gang minimum, from ``minAvailable`` or its partitions; ``None`` for all pods (D3)."""

    @property
    def count(self) -> int:
        """Return the number of its pods."""
        return max(self.replicas, 0)

    @property
    def effective_minimum(self) -> int:
        """Return its minimum, at most its replicas."""
        return self.count if self.minimum is None else max(min(self.minimum, self.count), 0)


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """The size of a Volcano Job."""

    tasks: tuple[Task, ...]
    min_available: int = 0
    """0 where it is not set."""

    @property
    def gang_pods(self) -> int:
        """Return how many pods must start together: ``minAvailable``, or the sum of the task minimums."""
        return self.min_available if self.min_available > 0 else sum(task.effective_minimum for task in self.tasks)


def pod_request(pod: PodTemplate) -> Resources:
    """Return the requests of one pod, which include one of ``pods`` for itself (D2).

    Negative amounts, which no API server accepts, count as zero.
    """
    amounts = add(_with_pod_level(pod, _containers(pod)), clamp_non_negative(pod.overhead))
    return positive({**amounts, PODS: MILLI})


def with_few_containers(pod: PodTemplate) -> PodTemplate:
    """Return *pod* with few containers and equal requests: a pod may have 15,000 of them, in 500 bytes each."""
    containers, init = pod.containers, pod.init
    if len(containers) > _MAX_CONTAINERS:
        rest = total(container.effective_requests for container in containers[_MAX_CONTAINERS:])
        containers = (*containers[:_MAX_CONTAINERS], Container(rest))
    if len(init) > _MAX_CONTAINERS:
        sidecars, starting = _init_containers(init)
        more = {name: amount - sidecars.get(name, 0) for name, amount in starting.items()}
        init = (Container(sidecars, restarts=True), Container(more))
    return pod if containers is pod.containers and init is pod.init else replace(pod, containers=containers, init=init)


def pod_requests(job: JobTemplate) -> tuple[Resources, ...]:
    """Return the distinct requests of the job's pods, in task order."""
    requests = (pod_request(task.pod) for task in job.tasks if task.count)
    return tuple({tuple(sorted(request.items())): request for request in requests}.values())


def total_requests(job: JobTemplate) -> Resources:
    """Return the sum of the requests of all pods of the job (D3)."""
    return positive(total(scale(pod_request(task.pod), task.count) for task in job.tasks))


def gang_minimum(job: JobTemplate, priority_of: Callable[[str], int]) -> Resources:
    """Return what must be placeable at once for the job to start (D4).

    *priority_of* returns the value of a PriorityClass, 0 for an unknown one; a task
    without a class counts as 0, whatever the cluster's default.
    """
    return positive(total(scale(pod_request(task.pod), count) for task, count in _gang(job, priority_of)))


def pod_sets(
    job: JobTemplate, priority_of: Callable[[str], int], *, with_node_claims: bool = False
) -> tuple[PodSet, ...]:
    """Return the pods of the job by requests, in Volcano's order of tasks; counted as in ``gang_minimum``.

    *with_node_claims* separates pods with different node constraints.
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
    """Yield how many pods of each task belong to the gang minimum, in Volcano's order of tasks.

    The task minimums come first where the gang is at least as large as their sum;
    otherwise they are ignored and pods are counted task by task.
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
    """Return the most that the containers request at any time of the pod's life.

    While an init container runs, the sidecars started before it run too.
    """
    running = total(container.effective_requests for container in pod.containers)
    if not pod.init:
        return running
    sidecars, starting = _init_containers(pod.init)
    return elementwise_max(add(running, sidecars), starting)


def _init_containers(init: Iterable[Container]) -> tuple[Resources, Resources]:
    """Return the requests of all sidecars, and the most that is requested while the init containers run."""
    # Only the resources of the container itself change: with all of them, many containers would take quadratic time.
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in init:
        for name, amount in container.effective_requests.items():
            running_with = sidecars.get(name, 0) + amount
            starting[name] = max(starting.get(name, 0), running_with)
            if container.restarts:
                sidecars[name] = running_with
    return sidecars, starting


def _with_pod_level(pod: PodTemplate, containers: Resources) -> Resources:
    """Return *containers* overridden by the pod-level resources, with their Kubernetes defaults.

    A missing pod-level request is what the containers request; the pod-level limit
    where they request nothing, and always for huge pages, which cannot be overcommitted.
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
