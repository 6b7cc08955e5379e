"""Finds the least single changes that would admit a pending workload now, each verified by the engine.

One change per dimension: smaller requests, another queue or PriorityClass, more quota, more capacity, another
placement, or other jobs that finish. A change is found by bisection: the next smaller one does not admit.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from controller.api.quantity import format_quantity
from controller.engine.placement.filter import Exclusion, candidates, untolerated_taints
from controller.engine.shortfalls import cluster_gaps
from controller.engine.state.clusters import Cluster, ClusterName, Placement, Taint, Toleration
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
from controller.engine.state.resources import PODS, Resources
from controller.engine.state.workloads import VOLCANO_JOB, SchedulingRequirements, Workload, WorkloadState, WorkloadUid
from controller.forecast.trials import STEPS, Edit, Trials, finished, least, step_of

T = TypeVar("T")

#: An amount is raised by at most so many times what the workload requests.
_MAX_RAISE: Final = 8
#: Of the clusters, so many are tried: those that lack least.
_MAX_CLUSTERS: Final = 3
#: Of the sets of taints that exclude a cluster, so many are tried: the smallest ones.
_MAX_TAINTS: Final = 8
#: Of the other queues, so many are tried: those with the fewest pending workloads.
_MAX_QUEUES: Final = 16
#: Of a template, so many tasks and containers are tried: the first ones.
_MAX_TASKS: Final = 16
_MAX_CONTAINERS: Final = 4
#: Maximum number of workloads that are asked to finish, and of those among which they are chosen.
_MAX_FINISHED: Final = 8
_MAX_ADMITTED: Final = 16
#: A trial of more quota or capacity evaluates all classes and queues; it ends the search after so many of them.
_MAX_EVALUATED: Final = 100_000


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
    yield from search.other_placement()
    # Trials of quota and capacity come last: the next trial after one evaluates all classes again.
    completions = tuple(search.completions())
    yield from search.more_quota()
    yield from search.more_capacity()
    yield from completions


class _Search:
    """The search for one workload."""

    def __init__(self, trials: Trials, job: PendingJob) -> None:
        self._trials = trials
        self._engine = trials.engine
        self._job = job
        self._workload = workload = job.workload
        self._requirements: SchedulingRequirements = workload.requirements
        self._target = f"job/{workload.namespace}/{workload.name}"
        self._requested = {
            name: amount for name, amount in workload.requirements.requests.items() if amount > 0 and name != PODS
        }
        self._evaluated = 0
        """Classes and queues that trials of quota and capacity have evaluated."""
        trials.is_cut = False

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
        for index, task in enumerate(template.tasks[:_MAX_TASKS]):
            yield from self._fewer_replicas(template, index, task)
            for number, container in enumerate(task.pod.containers[:_MAX_CONTAINERS]):
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
            step, is_extended = step_of(resource), resource not in STEPS
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

            count = self._least_template(smaller, (amount - 1) // step)
            if count is not None:
                field = f"spec.tasks[{index}].template.spec.containers[{number}].resources"
                before, after = (format_quantity(resource, value) for value in (amount, amount - count * step))
                changes = (
                    FieldChange(self._target, f"{field}.{part}.{quoted(resource)}", before, after) for part in parts
                )
                yield Counterfactual(Dimension.REQUESTS, tuple(changes))

    def _least_template(self, smaller: Callable[[int], JobTemplate], most: int) -> int | None:
        return least(lambda count: self._admits_as(self._with_template(smaller(count))), most)

    def other_queues(self) -> Iterator[Counterfactual]:
        """Yield each of the queues with the fewest pending workloads that would admit it."""
        tree, policy, workload = self._engine.tree(), self._engine.policy, self._workload
        # The record fixes the queue of a workload that is admitted, and evicted by this plan (Q6).
        if self._job.template is None or workload.state is WorkloadState.ADMITTED:
            return
        usable = [
            node.name
            for node in tree.leaves()
            if node.parent is not None
            and node.name != workload.queue
            and node.queue.state is QueueState.OPEN
            and policy.refusal(workload.namespace, node.name, workload.priority_class, *workload.details.task_classes)
            is None
        ]
        for name in sorted(usable, key=lambda name: (self._engine.pending_count(name), name))[:_MAX_QUEUES]:
            if self._admits_as(replace(workload, queue=name, details=workload.details.without_claims())):
                yield self._own(Dimension.QUEUE, "spec.queue", workload.queue, name)

    def higher_priority(self) -> Iterator[Counterfactual]:
        """Yield the lowest PriorityClass above its own that its namespace may use and that admits it."""
        workload, policy = self._workload, self._engine.policy
        classes = sorted(
            (value, name)
            for name, value in (self._job.priority_classes or {}).items()
            if value > workload.priority
            and policy.refusal(workload.namespace, workload.queue, name, *workload.details.task_classes) is None
        )

        def raised(count: int) -> Workload:
            value, name = classes[count - 1]
            details = replace(workload.details, priority_class=name, unknown_class=False)
            return replace(workload, priority=value, details=details)

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
        if node is None:
            return
        lacking = self._lacking_quota(node)
        if lacking is None:
            names, fields = sorted(self._requested), {"capability", "deserved"}
        elif len(lacking) == 1 and self._fits_a_cluster():
            # A limit was reached, which a higher deserved amount does not raise.
            names, fields = [*lacking], {"capability"}
        else:
            return
        for queue in [ancestor.queue for ancestor in node.path() if ancestor.parent is not None]:
            for resource in names:
                # A queue without a capability is limited by its parent only, one without deserved shares by weight.
                for field, amounts in (("capability", queue.capability), ("deserved", queue.deserved)):
                    if resource in amounts and field in fields:
                        missing = (lacking or {}).get(resource, 0)
                        yield from self._raise_quota(queue, field, resource, amounts, missing=missing)

    def _raise_quota(
        self, queue: Queue, field: str, resource: str, amounts: Resources, *, missing: int
    ) -> Iterator[Counterfactual]:
        def admits(after: int) -> bool:
            raised = {**amounts, resource: after}
            changed = replace(queue, capability=raised) if field == "capability" else replace(queue, deserved=raised)
            return self._admits(Edit(queues=(changed,)))

        change = FieldChange(f"queue/{queue.name}", f"spec.{field}.{quoted(resource)}", "", "")
        yield from self._raise(Dimension.QUOTA, change, resource, (amounts[resource], missing), admits=admits)

    def more_capacity(self) -> Iterator[Counterfactual]:
        """Yield a larger allocatable amount of one of the closest clusters, for one resource."""
        gaps = {gap.cluster: gap.missing for gap in cluster_gaps(self._engine.feasibility_cache, self._requirements)}
        node = self._engine.tree().nodes.get(self._workload.queue)
        lacking = self._lacking_quota(node) if node is not None else None
        for name in self._closest_clusters():
            cluster = self._engine.cluster_usage.cluster_state(name).cluster
            if cluster is None or cluster.allocatable is None:
                continue
            missing = gaps.get(name, {})
            for resource in sorted(self._requested):
                # One amount cannot help where another one is lacking, too.
                if lacking is None or {*lacking, *missing} <= {resource}:
                    amount = max(missing.get(resource, 0), (lacking or {}).get(resource, 0))
                    yield from self._raise_capacity(cluster, cluster.allocatable, resource, amount)

    def _raise_capacity(
        self, cluster: Cluster, amounts: Resources, resource: str, missing: int
    ) -> Iterator[Counterfactual]:
        def admits(after: int) -> bool:
            return self._admits(Edit(clusters=(replace(cluster, allocatable={**amounts, resource: after}),)))

        field = f"status.resourceSummary.allocatable.{quoted(resource)}"
        change = FieldChange(f"cluster/{cluster.name}", field, "", "")
        yield from self._raise(Dimension.CAPACITY, change, resource, (amounts.get(resource, 0), missing), admits=admits)

    def _lacking_quota(self, node: Node) -> dict[str, int] | None:
        """Return by how much its requests exceed the limits on its path; ``None`` where other things may decide.

        Where nothing is admitted or evicted now, a workload that exceeds limits is admitted only once it does not.
        """
        engine, workload = self._engine, self._workload
        if not self._trials.decides_nothing or workload.gang is not None or workload.uid not in engine.pending:
            return None
        settled = engine.queue_shares.quota if engine.queue_shares is not None else None
        charge = engine.pending.class_of(workload.uid).charge
        lacking: dict[str, int] = {}
        for quota in (settled, engine.queue_usage.current_quota()):
            for fault in quota.violations(quota.tree.nodes[node.name], charge) if quota is not None else ():
                resource = fault.resource or ""
                lacking[resource] = max(lacking.get(resource, 0), (fault.asked or 0) - (fault.available or 0))
        if lacking or not self._fits_a_cluster():
            return lacking
        return None

    def _fits_a_cluster(self) -> bool:
        cache = self._engine.feasibility_cache
        return cache.refusal(cache.get(self._requirements)) is None

    def _closest_clusters(self) -> list[ClusterName]:
        feasibility_cache = self._engine.feasibility_cache
        names = [gap.cluster for gap in cluster_gaps(feasibility_cache, self._requirements)]
        more = [name for name in feasibility_cache.get(self._requirements).candidates.names if name not in names]
        return [*names, *more][:_MAX_CLUSTERS]

    def _raise(
        self,
        dimension: Dimension,
        change: FieldChange,
        resource: str,
        amounts: tuple[int, int],
        *,
        admits: Callable[[int], bool],
    ) -> Iterator[Counterfactual]:
        """Raise an amount; *amounts* are what it is and how much is known to be lacking."""
        step, (before, lacking) = step_of(resource), amounts
        # A queue may name `pods`, which every workload requests.
        need = -(-self._requirements.requests.get(resource, 0) // step)
        cost = sum(1 for _ in self._engine.pending.classes()) + len(self._engine.queues)

        def admits_more(count: int) -> bool:
            self._evaluated += cost
            return admits(before + count * step)

        if self._evaluated > _MAX_EVALUATED:
            self._trials.is_cut = True
        else:
            count = least(admits_more, need * _MAX_RAISE, -(-lacking // step))
            if count is not None:
                texts = [format_quantity(resource, amount) for amount in (before, before + count * step)]
                yield Counterfactual(dimension, (replace(change, before=texts[0], after=texts[1]),))

    # -- placement and other workloads ---------------------------------

    def other_placement(self) -> Iterator[Counterfactual]:
        """Yield the placement without its cluster affinity, and with tolerations of the taints of one cluster."""
        placement: Placement = self._requirements.placement
        if not self._job.binding:
            return
        target = f"resourcebinding/{self._workload.namespace}/{self._job.binding}"
        affinities = {"clusterAffinity": placement.affinity, "clusterAffinities": placement.terms}
        fields = [field for field, is_set in affinities.items() if is_set]
        if fields and self._admits_with(replace(placement, affinity=None, terms=())):
            changes = (FieldChange(target, f"spec.placement.{field}", "set", "null") for field in fields)
            yield Counterfactual(Dimension.PLACEMENT, tuple(changes))
        sufficient: list[tuple[Taint, ...]] = []
        for taints in self._excluding_taints(placement):
            tolerations = (*placement.tolerations, *map(_toleration, taints))
            # Tolerations that contain sufficient ones are not minimal.
            if not any({*others} <= {*taints} for others in sufficient) and self._admits_with(
                replace(placement, tolerations=tolerations)
            ):
                sufficient.append(taints)
                texts = _written(placement.tolerations), _written(tolerations)
                change = FieldChange(target, "spec.placement.clusterTolerations", *texts)
                yield Counterfactual(Dimension.PLACEMENT, (change,))

    def _excluding_taints(self, placement: Placement) -> list[tuple[Taint, ...]]:
        """Return the different sets of taints that exclude a cluster, the smallest ones."""
        excluded = candidates(self._requirements, self._engine.cluster_usage.clusters).excluded
        states = (self._engine.cluster_usage.cluster_state(name) for name in sorted(excluded))
        taints = dict.fromkeys(
            untolerated_taints(state.cluster, placement)
            for state in states
            if state.cluster is not None and excluded[state.name] is Exclusion.UNTOLERATED_TAINT
        )
        return sorted(taints, key=len)[:_MAX_TAINTS]

    def _admits_with(self, placement: Placement) -> bool:
        return self._admits_as(replace(self._workload, requirements=replace(self._requirements, placement=placement)))

    def completions(self) -> Iterator[Counterfactual]:
        """Yield admitted workloads that must finish, none of which can be left out."""
        competitors = sorted(self._competitors(), key=_completion_order)
        # Those of one close cluster suffice where capacity is lacking; others may have to finish where quota is.
        for pool in [*(_on(cluster, competitors) for cluster in self._closest_clusters()), competitors]:
            required = self._required(pool[:_MAX_ADMITTED])
            if required and len(required) <= _MAX_FINISHED:
                yield Counterfactual(
                    Dimension.COMPLETION,
                    tuple(
                        FieldChange(_path(workload), "status.state.phase", "Running", "Completed")
                        for workload in required
                    ),
                )
                return

    def _required(self, running: list[Workload]) -> list[Workload]:
        """Return those of *running* that must finish, without one that can be left out; none where all do not help."""
        count = least(lambda n: self._admits_after(running[:n]), len(running))
        required, is_minimal = running[: count or 0], False
        while not is_minimal:
            is_minimal = True
            for workload in required if len(required) > 1 else ():
                others = [other for other in required if other is not workload]
                if self._admits_after(others):
                    required, is_minimal = others, False
        return required

    def _admits_after(self, workloads: Iterable[Workload]) -> bool:
        return self._admits(Edit(workloads=tuple(map(finished, workloads))))

    def _competitors(self) -> Iterator[Workload]:
        """Yield the admitted Volcano Jobs on its candidate clusters, and of the queues below its highest ancestor.

        Of other kinds it is not known how they finish; Deployments do not.
        """
        engine = self._engine
        clusters = set(engine.feasibility_cache.get(self._requirements).candidates.names)
        node: Node | None = engine.tree().nodes.get(self._workload.queue)
        top = [*node.path()][-2:][0] if node else None
        queues = {node.name for node in engine.tree().leaves() if top is not None and top in node.path()}
        for workload in engine.workloads.values():
            admission = workload.admission
            is_job = workload.requirements.api == VOLCANO_JOB
            if not is_job or workload.state is not WorkloadState.ADMITTED or admission is None:
                continue
            shares_cluster = any(cluster_charge.cluster in clusters for cluster_charge in admission.cluster_charges)
            if (shares_cluster or workload.queue in queues) and any(
                admission.charge.get(name) for name in self._requested
            ):
                yield workload


def _on(cluster: ClusterName, workloads: Iterable[Workload]) -> list[Workload]:
    return [
        workload
        for workload in workloads
        if workload.admission and any(charge.cluster == cluster for charge in workload.admission.cluster_charges)
    ]


def _toleration(taint: Taint) -> Toleration:
    return Toleration(taint.key, "Equal" if taint.value else "Exists", taint.value, taint.effect)


def _written(tolerations: Iterable[Toleration]) -> str:
    """Return *tolerations* as the JSON of a placement."""
    written = [
        {name: text for name in ("key", "operator", "value", "effect") if (text := getattr(toleration, name))}
        for toleration in tolerations
    ]
    return msgspec.json.encode(written).decode()


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
