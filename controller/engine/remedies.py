"""Finds by how much queues and clusters must grow to admit a pending workload, and verifies it.

Changes are applied to a copy of the state and planned there, first for the workload alone, then with all
others. Computed on request, never in a cycle.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from controller.engine.engine import Engine
from controller.engine.placement.feasibility_cache import FeasibilityCache
from controller.engine.plan import Plan
from controller.engine.policy import EvictionPolicy, Policy
from controller.engine.reasons import ENDED_BY_CAPACITY, Reason, Refusal
from controller.engine.shortfalls import cluster_gaps
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import ROOT, Node, Queue, QueueName
from controller.engine.state.pending import WorkloadClass, order_key
from controller.engine.state.quota import Quota
from controller.engine.state.workloads import Choice, Workload, WorkloadState, WorkloadUid

#: Maximum number of attempts, each with what was still missing added.
_MAX_ATTEMPTS: Final = 12
#: Maximum number of plans after evictions, until nothing more is decided.
_MAX_PLANS: Final = 4
#: With more pending workloads than this, the changes are verified for the workload alone.
_MAX_PENDING: Final = 5_000

Kind = Literal["queue", "cluster"]
_Key = tuple[Kind, str, str]
"""A changed amount: of a queue's capability or a cluster's allocatable; its name; the resource."""

_EXCEEDS_QUOTA = frozenset({Reason.EXCEEDS_QUEUE_LIMIT, Reason.EXCEEDS_TOTAL_CAPACITY})


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a queue's capability or a cluster's allocatable for one resource, in base units."""

    kind: Kind
    name: str
    resource: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Remedy:
    """Changes that admit a pending workload, and what still precedes it."""

    changes: tuple[Change, ...]
    """Empty where the workload lacks nothing once it is first in order."""
    is_complete: bool
    """Whether the workload is admitted with all others present; alone it always is."""
    others: tuple[Workload, ...] = ()
    """Workloads that use the added capacity before it."""
    refusal: Refusal | None = None
    """Why it is still pending with all others present."""


def find_remedy(engine: Engine, uid: WorkloadUid, now: int, plan: Plan) -> Remedy | None:
    """Return what admits the pending workload *uid* after *plan*; ``None`` where no capacity does."""
    refusal = engine.refusal(uid)
    if refusal is None or refusal.reason not in ENDED_BY_CAPACITY or uid not in engine.pending:
        return None
    changes = _changes_for_workload_alone(engine, uid, now)
    return None if changes is None else _try_with_other_workloads(engine, uid, now, plan=plan, changes=changes)


def rebuild_state(engine: Engine, policy: Policy, workloads: Iterable[Workload], now: int) -> Engine:
    """Return a new engine with the queues and clusters of *engine*, and *workloads*."""
    # No estimator answers queries of the copy; there the sum decides.
    copy = Engine(replace(policy, node_estimates=False))
    for queue in engine.queues.values():
        copy.queue_changed(queue)
    for workload in workloads:
        copy.workload_changed(workload, now)
    for cluster in engine.cluster_usage.clusters:
        copy.cluster_changed(cluster, now)
    return copy


def apply_changes(engine: Engine, changes: Iterable[Change], now: int) -> None:
    """Apply *changes* to *engine*."""
    for change in changes:
        if change.kind == "cluster":
            cluster = engine.cluster_usage.cluster_state(ClusterName(change.name)).cluster
            if cluster is not None:
                enlarged = {**(cluster.allocatable or {}), change.resource: change.after}
                engine.cluster_changed(replace(cluster, allocatable=enlarged), now)
        else:
            queue = engine.queues.get(QueueName(change.name), Queue(QueueName(change.name)))
            engine.queue_changed(replace(queue, capability={**queue.capability, change.resource: change.after}))


def plan_until_stable(engine: Engine, now: int) -> dict[WorkloadUid, Workload]:
    """Plan at *now* until nothing more is decided; return what the plans changed, as it was before them."""
    originals: dict[WorkloadUid, Workload] = {}
    for _ in range(_MAX_PLANS):
        plan = engine.plan(now)
        originals = plan.originals | originals
        if not plan.decisions:
            break
    return originals


def _changes_for_workload_alone(engine: Engine, uid: WorkloadUid, now: int) -> tuple[Change, ...] | None:
    """Return the changes that admit a workload without competitors and preemption; ``None`` if there are none."""
    gang = engine.workloads[uid].gang
    workloads = [
        workload
        for workload in engine.workloads.values()
        if workload.uid == uid or workload.admission is not None or (gang is not None and workload.gang == gang)
    ]
    policy = replace(engine.policy, reclaim=EvictionPolicy(), preemption=EvictionPolicy())
    amounts: dict[_Key, int] = {}
    for _ in range(_MAX_ATTEMPTS):
        trial = rebuild_state(engine, policy, workloads, now)
        changes = _changes(engine, amounts)
        apply_changes(trial, changes, now)
        plan_until_stable(trial, now)
        if trial.workloads[uid].state is WorkloadState.ADMITTED:
            return changes
        required = dict(_required_amounts(trial, uid)) if uid in trial.pending else {}
        if not required:
            return None
        amounts |= required
    return None


def _changes(engine: Engine, amounts: Mapping[_Key, int]) -> tuple[Change, ...]:
    """Return the changes sorted by kind, name and resource, with the current amounts of *engine*."""
    changes = []
    for (kind, name, resource), after in sorted(amounts.items(), key=lambda item: (item[0][0] != "queue", item[0])):
        if kind == "cluster":
            before = engine.cluster_usage.cluster_state(ClusterName(name)).allocatable.get(resource, 0)
        else:
            queue = engine.queues.get(QueueName(name))
            before = queue.capability.get(resource, 0) if queue is not None else 0
        changes.append(Change(kind, name, resource, before, after))
    return tuple(changes)


def _required_amounts(trial: Engine, uid: WorkloadUid) -> Iterator[tuple[_Key, int]]:
    """Yield the amounts to raise: of the closest clusters, and once these suffice of the queues."""
    workload_class, queue_shares = trial.pending.class_of(uid), trial.queue_shares
    missing = [
        (gap.cluster, name, amount)
        for gap in cluster_gaps(trial.feasibility_cache, workload_class.requirements)
        for name, amount in gap.missing.items()
    ]
    for cluster, name, amount in missing:
        yield ("cluster", cluster, name), trial.cluster_usage.cluster_state(cluster).allocatable.get(name, 0) + amount
    node = trial.tree().nodes.get(workload_class.queue)
    if missing or queue_shares is None or node is None:
        return
    quotas = [quota for quota in (queue_shares.quota, trial.queue_usage.current_quota()) if quota is not None]
    faults = [
        (quota, fault)
        for quota in quotas
        for fault in quota.violations(quota.tree.nodes[workload_class.queue], workload_class.charge)
    ]
    if not faults and workload_class.inadmissible is not None and workload_class.inadmissible.reason in _EXCEEDS_QUOTA:
        faults = [(queue_shares.quota, workload_class.inadmissible)]
    for quota, fault in faults:
        increase = (fault.asked or 0) - (fault.available or 0)
        growth = _LimitIncrease(trial.feasibility_cache, quota, workload_class)
        yield from growth.amounts(quota.tree.nodes[QueueName(fault.queue or ROOT)], fault.resource or "", increase)


class _LimitIncrease:
    """Computes how far to raise what limits a queue: its capability, its ancestors', the clusters."""

    def __init__(self, feasibility_cache: FeasibilityCache, quota: Quota, workload_class: WorkloadClass) -> None:
        self._feasibility_cache = feasibility_cache
        self._cluster_usage = feasibility_cache.cluster_usage
        self._quota = quota
        self._workload_class = workload_class

    def amounts(self, node: Node, resource: str, increase: int) -> Iterator[tuple[_Key, int]]:
        """Yield what raises the limit of *node* for *resource*."""
        required = self._limit(node, resource) + increase
        capability = node.queue.capability.get(resource)
        if capability is not None and capability < required:
            yield ("queue", node.name, resource), required
        if node.parent is None:
            pool = self._cluster_usage.root_limit().get(resource, 0)
            yield from self._cluster_amount(resource, required - pool)
            return
        siblings = sum(
            self._quota.limits[child.name].guarantee.get(resource, 0)
            for child in node.parent.children
            if child is not node
        )
        missing = required + siblings - self._limit(node.parent, resource)
        if missing > 0:
            yield from self.amounts(node.parent, resource, missing)

    def _limit(self, node: Node, resource: str) -> int:
        return self._quota.limits[node.name].limit.get(resource, 0)

    def _cluster_amount(self, resource: str, increase: int) -> Iterator[tuple[_Key, int]]:
        """Yield the amount to add to one cluster: where the workload fits, else its first candidate."""
        feasibility = self._feasibility_cache.get(self._workload_class.requirements)
        choice = self._feasibility_cache.choose(feasibility)
        names = (
            [charge.cluster for charge in choice.cluster_charges]
            if isinstance(choice, Choice)
            else feasibility.candidates.names
        )
        if increase > 0 and names:
            cluster_state = self._cluster_usage.cluster_state(names[0])
            yield ("cluster", cluster_state.name, resource), cluster_state.allocatable.get(resource, 0) + increase


def _try_with_other_workloads(
    engine: Engine, uid: WorkloadUid, now: int, *, plan: Plan, changes: tuple[Change, ...]
) -> Remedy:
    """Try *changes* with all other workloads, in the state before *plan*; return the remedy."""
    workloads = workloads_before(engine, plan)
    if sum(workload.state is WorkloadState.PENDING for workload in workloads) > _MAX_PENDING:
        return Remedy(changes, is_complete=False, refusal=engine.refusal(uid))
    trial = rebuild_state(engine, engine.policy, workloads, now)
    apply_changes(trial, changes, now)
    plan_until_stable(trial, now)
    if trial.workloads[uid].state is WorkloadState.ADMITTED:
        return Remedy(changes, is_complete=True)
    admitted = [
        workload
        for workload in trial.workloads.values()
        if workload.state is WorkloadState.ADMITTED and engine.workloads[workload.uid].state is WorkloadState.PENDING
    ]
    return Remedy(changes, is_complete=False, others=tuple(sorted(admitted, key=order_key)), refusal=trial.refusal(uid))


def workloads_before(engine: Engine, plan: Plan) -> list[Workload]:
    """Return the workloads of *engine* as they were before *plan*."""
    changed = plan.originals
    return [changed.get(uid, workload) for uid, workload in engine.workloads.items()]
