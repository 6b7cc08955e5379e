"""Finds the least single changes that would admit a pending workload now, each verified by the engine.

One change per dimension: smaller requests, another queue or PriorityClass, more quota, more capacity, another
placement, or other workloads that finish. A change is found by bisection: the next smaller one does not admit.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar

from controller.api.quantity import format_quantity
from controller.engine.shortfalls import cluster_gaps
from controller.engine.state.clusters import Cluster, ClusterName, Placement
from controller.engine.state.hierarchy import Node, Queue, QueueState
from controller.engine.state.requests import (
    Container,
    JobTemplate,
    Task,
    gang_minimum,
    pod_requests,
    pod_sets,
    total_requests,
)
from controller.engine.state.resources import CPU, MEMORY, MILLI, PODS, Resources
from controller.engine.state.workloads import Workload, WorkloadState, WorkloadUid
from controller.forecast.trials import Edit, Trials, finished

T = TypeVar("T")

#: Smallest change of an amount, in base units: 100m CPU, 128 Mi of memory, one of everything else.
_STEPS: Final = {CPU: 100, MEMORY: 128 * 2**20}
#: An amount is raised by at most so many times what the workload requests.
_MAX_RAISE: Final = 8
#: Of the clusters, so many are tried: those that lack least.
_MAX_CLUSTERS: Final = 3
#: Of the other queues, so many are tried: those with the fewest pending workloads.
_MAX_QUEUES: Final = 16
#: Maximum number of workloads that are asked to finish, and of those among which they are chosen.
_MAX_FINISHED: Final = 8
_MAX_ADMITTED: Final = 256
#: With more pending workloads than this, more quota and capacity are not tried: each trial evaluates all of them.
_MAX_PENDING: Final = 5_000


class Dimension(StrEnum):
    """What a counterfactual changes."""

    REQUESTS = "requests"
    QUEUE = "queue"
    PRIORITY = "priority"
    QUOTA = "quota"
    CAPACITY = "capacity"
    PLACEMENT = "placement"
    COMPLETION = "completion"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A changed field of one object; its text is what ``plan --what-if`` takes."""

    target: str
    """The object: ``job/NAMESPACE/NAME``, ``queue/NAME``, ``cluster/NAME``."""
    field: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.target}.{self.field}={self.after}"


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """Field changes of one dimension that admit a workload together; none of them can be left out or be smaller."""

    dimension: Dimension
    changes: tuple[FieldChange, ...]


@dataclass(frozen=True, slots=True)
class PendingJob:
    """The pending workload, and what of it may be changed."""

    workload: Workload
    template: JobTemplate | None = None
    """Its template, ``None`` where its requests cannot be changed alone: a part of a HyperJob, another kind."""
    priority_of: Callable[[str], int] = lambda _: 0
    """Returns the value of a PriorityClass for the tasks of a job."""
    priority_classes: Mapping[str, int] | None = None
    """The value of every PriorityClass, ``None`` where its class cannot be changed."""
    binding: str = ""
    """The name of its binding; empty where the placement cannot be changed."""


def find_counterfactuals(trials: Trials, job: PendingJob) -> Iterator[Counterfactual]:
    """Yield the counterfactuals of *job*, changes of its own first; nothing if no single change admits it."""
    search = _Search(trials, job)
    if trials.admits(Edit(), job.workload.uid):
        return
    yield from search.smaller_requests()
    yield from search.other_queues()
    yield from search.higher_priority()
    if len(trials.engine.pending) <= _MAX_PENDING:
        yield from search.more_quota()
        yield from search.more_capacity()
    yield from search.other_placement()
    yield from search.completions()


def least(admits: Callable[[int], bool], most: int) -> int | None:
    """Return an *n* from 1 to *most* that admits while ``n - 1`` does not, ``None`` if *most* does not.

    Zero is known not to admit. Bisection: the smallest one where admission is monotonic in *n*.
    """
    if most < 1 or not admits(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if admits(middle) else (middle, high)
    return high


def step_of(resource: str) -> int:
    """Return the smallest change of *resource*, in base units."""
    return _STEPS.get(resource, MILLI)


class _Search:
    """The search for one workload."""

    def __init__(self, trials: Trials, job: PendingJob) -> None:
        self._trials = trials
        self._engine = trials.engine
        self._job = job
        self._workload = workload = job.workload
        self._target = f"job/{workload.namespace}/{workload.name}"
        self._requested = {
            name: amount for name, amount in workload.requirements.requests.items() if amount > 0 and name != PODS
        }

    def _admits(self, edit: Edit) -> bool:
        return self._trials.admits(edit, self._workload.uid)

    def _admits_as(self, workload: Workload) -> bool:
        return self._admits(Edit(workloads=(workload,)))

    # -- the workload --------------------------------------------------

    def smaller_requests(self) -> Iterator[Counterfactual]:
        """Yield fewer replicas, a smaller gang, and smaller pods of one task each."""
        template = self._job.template
        if template is None:
            return
        for index, task in enumerate(template.tasks):
            yield from self._fewer_replicas(template, index, task)
            for number, container in enumerate(task.pod.containers):
                if not (task.pod.requests or task.pod.limits):
                    yield from self._smaller_container(template, index, number, container)
        yield from self._smaller_gang(template)

    def _fewer_replicas(self, template: JobTemplate, index: int, task: Task) -> Iterator[Counterfactual]:
        others = sum(other.count for other in template.tasks) - task.count
        floor = max(task.minimum or 0, template.min_available - others, 0 if others else 1)

        def smaller(count: int) -> JobTemplate:
            return _with_task(template, index, replace(task, replicas=task.count - count))

        count = self._least_template(smaller, task.count - floor)
        if count is not None:
            yield self._own(Dimension.REQUESTS, f"spec.tasks[{index}].replicas", task.count, task.count - count)

    def _smaller_gang(self, template: JobTemplate) -> Iterator[Counterfactual]:
        pods = template.gang_pods

        def smaller(count: int) -> JobTemplate:
            return replace(template, min_available=pods - count)

        count = self._least_template(smaller, pods - 1)
        if count is not None:
            yield self._own(Dimension.REQUESTS, "spec.minAvailable", template.min_available or pods, pods - count)

    def _smaller_container(
        self, template: JobTemplate, index: int, number: int, container: Container
    ) -> Iterator[Counterfactual]:
        for resource, amount in sorted(container.effective_requests.items()):
            step, is_extended = step_of(resource), resource not in _STEPS
            # Kubernetes requires equal requests and limits of extended resources; of others the request counts.
            parts = [part for part in ("requests", "limits") if resource in getattr(container, part)]
            parts = parts if is_extended else parts[:1]

            def smaller(count: int, resource: str = resource, after: int = amount, step: int = step) -> JobTemplate:
                after -= count * step
                requests, limits = (
                    {**amounts, resource: after} if resource in amounts else amounts
                    for amounts in (container.requests, container.limits)
                )
                task = template.tasks[index]
                changed = replace(container, requests=requests, limits=limits)
                containers = _replaced(task.pod.containers, number, changed)
                return _with_task(template, index, replace(task, pod=replace(task.pod, containers=containers)))

            count = self._least_template(smaller, (amount if is_extended else amount - 1) // step)
            if count is not None:
                field = f"spec.tasks[{index}].template.spec.containers[{number}].resources"
                before, after = (format_quantity(resource, each) for each in (amount, amount - count * step))
                changes = (
                    FieldChange(self._target, f"{field}.{part}.{quoted(resource)}", before, after) for part in parts
                )
                yield Counterfactual(Dimension.REQUESTS, tuple(changes))

    def _least_template(self, smaller: Callable[[int], JobTemplate], most: int) -> int | None:
        return least(lambda count: self._admits_as(self._with_template(smaller(count))), most)

    def other_queues(self) -> Iterator[Counterfactual]:
        """Yield each of the queues with the fewest pending workloads that would admit it."""
        if self._job.template is None:
            return
        tree, policy, workload = self._engine.tree(), self._engine.policy, self._workload
        usable = [
            node.name
            for node in tree.leaves()
            if node.parent is not None
            and node.name != workload.queue
            and node.queue.state is QueueState.OPEN
            and policy.refusal(workload.namespace, node.name, workload.priority_class, *workload.task_classes) is None
        ]
        pending = self._engine.pending.queues
        for name in sorted(usable, key=lambda name: (len(pending.get(name, ())), name))[:_MAX_QUEUES]:
            if self._admits_as(replace(workload, queue=name, nomination=None, reservation=None)):
                yield self._own(Dimension.QUEUE, "spec.queue", workload.queue, name)

    def higher_priority(self) -> Iterator[Counterfactual]:
        """Yield the lowest PriorityClass above its own that its namespace may use and that admits it."""
        workload, policy = self._workload, self._engine.policy
        classes = sorted(
            (value, name)
            for name, value in (self._job.priority_classes or {}).items()
            if value > workload.priority
            and policy.refusal(workload.namespace, workload.queue, name, *workload.task_classes) is None
        )

        def raised(count: int) -> Workload:
            value, name = classes[count - 1]
            return replace(workload, priority=value, priority_class=name, unknown_class=False)

        count = least(lambda n: self._admits_as(raised(n)), len(classes))
        if count is not None:
            before = workload.priority_class or "null"
            yield self._own(Dimension.PRIORITY, "spec.priorityClassName", before, classes[count - 1][1])

    def _own(self, dimension: Dimension, field: str, before: object, after: object) -> Counterfactual:
        return Counterfactual(dimension, (FieldChange(self._target, field, str(before), str(after)),))

    def _with_template(self, template: JobTemplate) -> Workload:
        job, requirements = self._job, self._workload.requirements
        has_claims = any(pod_set.node_claim for pod_set in requirements.pod_sets)
        smaller = replace(
            requirements,
            requests=total_requests(template),
            gang_requests=gang_minimum(template, job.priority_of),
            pods=pod_requests(template),
            pod_sets=pod_sets(template, job.priority_of, with_node_claims=has_claims),
        )
        return replace(self._workload, requirements=smaller)

    # -- quota and capacity --------------------------------------------

    def more_quota(self) -> Iterator[Counterfactual]:
        """Yield a higher capability or deserved amount of one queue on its path, for one resource."""
        node = self._engine.tree().nodes.get(self._workload.queue)
        for queue in [ancestor.queue for ancestor in node.path() if ancestor.parent is not None] if node else ():
            for resource in sorted(self._requested):
                # A queue without a capability is limited by its parent only, one without deserved shares by weight.
                if resource in queue.capability:
                    yield from self._raise_quota(queue, "capability", resource, queue.capability)
                if resource in queue.deserved:
                    yield from self._raise_quota(queue, "deserved", resource, queue.deserved)

    def _raise_quota(self, queue: Queue, field: str, resource: str, amounts: Resources) -> Iterator[Counterfactual]:
        def admits(after: int) -> bool:
            raised = {**amounts, resource: after}
            changed = replace(queue, capability=raised) if field == "capability" else replace(queue, deserved=raised)
            return self._admits(Edit(queues=(changed,)))

        change = FieldChange(f"queue/{queue.name}", f"spec.{field}.{quoted(resource)}", "", "")
        yield from self._raise(Dimension.QUOTA, change, resource, amounts[resource], admits=admits)

    def more_capacity(self) -> Iterator[Counterfactual]:
        """Yield a larger allocatable amount of one of the closest clusters, for one resource."""
        for name in self._closest_clusters():
            cluster = self._engine.cluster_usage.cluster_state(name).cluster
            if cluster is not None and cluster.allocatable is not None:
                for resource in sorted(self._requested):
                    yield from self._raise_capacity(cluster, cluster.allocatable, resource)

    def _raise_capacity(self, cluster: Cluster, amounts: Resources, resource: str) -> Iterator[Counterfactual]:
        def admits(after: int) -> bool:
            return self._admits(Edit(clusters=(replace(cluster, allocatable={**amounts, resource: after}),)))

        field = f"status.resourceSummary.allocatable.{quoted(resource)}"
        change = FieldChange(f"cluster/{cluster.name}", field, "", "")
        yield from self._raise(Dimension.CAPACITY, change, resource, amounts.get(resource, 0), admits=admits)

    def _closest_clusters(self) -> list[ClusterName]:
        feasibility_cache = self._engine.feasibility_cache
        requirements = self._workload.requirements
        names = [gap.cluster for gap in cluster_gaps(feasibility_cache, requirements)]
        more = [name for name in feasibility_cache.get(requirements).candidates.names if name not in names]
        return [*names, *more][:_MAX_CLUSTERS]

    def _raise(
        self, dimension: Dimension, change: FieldChange, resource: str, before: int, *, admits: Callable[[int], bool]
    ) -> Iterator[Counterfactual]:
        step = step_of(resource)
        need = -(-self._requested[resource] // step)
        count = least(lambda n: admits(before + n * step), need * _MAX_RAISE)
        if count is not None:
            texts = [format_quantity(resource, amount) for amount in (before, before + count * step)]
            yield Counterfactual(dimension, (replace(change, before=texts[0], after=texts[1]),))

    # -- placement and other workloads ---------------------------------

    def other_placement(self) -> Iterator[Counterfactual]:
        """Yield the placement without its cluster affinity, if a cluster that it excludes would take the workload."""
        placement: Placement = self._workload.requirements.placement
        if not self._job.binding or (placement.affinity is None and not placement.terms):
            return
        free = replace(self._workload.requirements, placement=replace(placement, affinity=None, terms=()))
        if self._admits_as(replace(self._workload, requirements=free)):
            fields = [
                field
                for field, is_set in (("clusterAffinity", placement.affinity), ("clusterAffinities", placement.terms))
                if is_set
            ]
            target = f"resourcebinding/{self._workload.namespace}/{self._job.binding}"
            yield Counterfactual(
                Dimension.PLACEMENT,
                tuple(FieldChange(target, f"spec.placement.{field}", "set", "null") for field in fields),
            )

    def completions(self) -> Iterator[Counterfactual]:
        """Yield admitted workloads that must finish, none of which can be left out."""
        running = sorted(self._competitors(), key=_completion_order)[:_MAX_ADMITTED]
        count = least(lambda n: self._admits_after(running[:n]), len(running))
        if count is None:
            return
        required = running[:count]
        for workload in required if count <= _MAX_ADMITTED // 4 else ():
            others = [other for other in required if other is not workload]
            if self._admits_after(others):
                required = others
        if len(required) <= _MAX_FINISHED:
            yield Counterfactual(
                Dimension.COMPLETION,
                tuple(
                    FieldChange(_path(workload), "status.state.phase", "Running", "Completed") for workload in required
                ),
            )

    def _admits_after(self, workloads: Iterable[Workload]) -> bool:
        return self._admits(Edit(workloads=tuple(map(finished, workloads))))

    def _competitors(self) -> Iterator[Workload]:
        """Yield the admitted workloads on its candidate clusters, and of the queues below its highest ancestor."""
        engine = self._engine
        clusters = set(engine.feasibility_cache.get(self._workload.requirements).candidates.names)
        node: Node | None = engine.tree().nodes.get(self._workload.queue)
        top = [*node.path()][-2:][0] if node else None
        queues = {node.name for node in engine.tree().leaves() if top is not None and top in node.path()}
        for workload in engine.workloads.values():
            admission = workload.admission
            if workload.state is not WorkloadState.ADMITTED or admission is None:
                continue
            shares_cluster = any(booking.cluster in clusters for booking in admission.cluster_charges)
            if (shares_cluster or workload.queue in queues) and any(
                admission.charge.get(name) for name in self._requested
            ):
                yield workload


def _completion_order(workload: Workload) -> tuple[int, int, WorkloadUid]:
    """Return a key: first the workloads of low priority, then the oldest admissions, which end first."""
    return workload.priority, workload.admission.admitted_at if workload.admission else 0, workload.uid


def _path(workload: Workload) -> str:
    return f"{workload.kind.lower()}/{workload.namespace}/{workload.name}"


def quoted(resource: str) -> str:
    """Return *resource* as an element of a field path, quoted if it contains a dot."""
    return f"'{resource}'" if "." in resource else resource


def _with_task(template: JobTemplate, index: int, task: Task) -> JobTemplate:
    return replace(template, tasks=_replaced(template.tasks, index, task))


def _replaced(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    return (*items[:index], item, *items[index + 1 :])
