"""Finds by how much queues and clusters must grow for a pending workload to be admitted, and tries that out.

Every change is carried out on a copy of the world and planned there, first for
the workload alone, then beside all others. Worked out on request, never by a
cycle.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from controller.engine.clusters import ClusterName
from controller.engine.pending import WorkloadClass, order_key
from controller.engine.plan import Plan
from controller.engine.policy import EvictionPolicy, Policy
from controller.engine.queues import ROOT, Queue, QueueName
from controller.engine.quota import Quota
from controller.engine.reasons import CAPACITY, Reason, Refusal
from controller.engine.shortfalls import cluster_gaps
from controller.engine.tree import Node
from controller.engine.workloads import Choice, Workload, WorkloadState, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.state import State

#: So often what still lacks is added and the workload tried again.
_MAX_ROUNDS: Final = 12
#: After evictions a plan looks again at once; so often, until nothing more is decided.
_MAX_PLANS: Final = 4
#: Beside more pending workloads than this the changes are tried for the workload alone.
_MAX_PENDING: Final = 5_000

Kind = Literal["queue", "cluster"]
_Key = tuple[Kind, str, str]
"""What is changed: a queue's capability or a cluster's allocatable amount, its name, the resource."""


@dataclass(frozen=True, slots=True)
class Change:
    """A queue's capability, or a cluster's allocatable amount, of one resource; in base units."""

    kind: Kind
    name: str
    resource: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Remedy:
    """Changes that admit a pending workload; what they do not include where others come before it."""

    changes: tuple[Change, ...]
    """Empty where it lacks nothing once it is first."""
    is_complete: bool
    """Whether the workload is admitted beside all others; alone it always is."""
    others: tuple[Workload, ...] = ()
    """The workloads that take what the changes add before it does."""
    refusal: Refusal | None = None
    """Why it still waits beside all others."""


def find_remedy(state: "State", uid: WorkloadUid, now: int, plan: Plan) -> Remedy | None:
    """Return what admits the pending workload *uid* in *world*, as *plan* left it; ``None`` where no capacity does."""
    refusal = state.refusal(uid)
    if refusal is None or refusal.reason not in CAPACITY or uid not in state.backlog:
        return None
    changes = _changes_for_workload_alone(state, uid, now)
    return None if changes is None else _try_with_other_workloads(state, uid, now, plan=plan, changes=changes)


def rebuild_state(state: "State", policy: Policy, workloads: Iterable[Workload], now: int) -> "State":
    """Return a new world with the queues and clusters of *world*, and *workloads*."""
    # Nobody answers a copy: there the sum decides.
    fresh = type(state)(replace(policy, node_estimates=False))
    for queue in state.queues.values():
        fresh.queue_changed(queue)
    for workload in workloads:
        fresh.workload_changed(workload, now)
    for cluster in state.ledger.clusters:
        fresh.cluster_changed(cluster, now)
    return fresh


def apply_changes(state: "State", changes: Iterable[Change], now: int) -> None:
    """Tell *world* of *changes*."""
    for change in changes:
        if change.kind == "cluster":
            _enlarge_cluster(state, change, now)
        else:
            queue = state.queues.get(QueueName(change.name), Queue(QueueName(change.name)))
            state.queue_changed(replace(queue, capability={**queue.capability, change.resource: change.after}))


def plan_until_stable(state: "State", now: int) -> None:
    """Plan at *now* until nothing more is decided."""
    for _ in range(_MAX_PLANS):
        if not state.plan(now).decisions:
            return


def _enlarge_cluster(state: "State", change: Change, now: int) -> None:
    cluster = state.ledger.site(ClusterName(change.name)).cluster
    if cluster is not None:
        enlarged = {**(cluster.allocatable or {}), change.resource: change.after}
        state.cluster_changed(replace(cluster, allocatable=enlarged), now)


def _changes_for_workload_alone(state: "State", uid: WorkloadUid, now: int) -> tuple[Change, ...] | None:
    """Return what admits a workload for which nobody is evicted while nobody else waits, ``None`` if nothing does."""
    group = state.workloads[uid].group
    workloads = [
        each
        for each in state.workloads.values()
        if each.uid == uid or each.admission is not None or (group is not None and each.group == group)
    ]
    policy = replace(state.policy, reclaim=EvictionPolicy(), preemption=EvictionPolicy())
    found: dict[_Key, int] = {}
    for _ in range(_MAX_ROUNDS):
        trial = rebuild_state(state, policy, workloads, now)
        changes = _changes(state, found)
        apply_changes(trial, changes, now)
        plan_until_stable(trial, now)
        if trial.workloads[uid].state is WorkloadState.ADMITTED:
            return changes
        more = dict(_required_amounts(trial, uid)) if uid in trial.backlog else {}
        if not more:
            return None
        found |= more
    return None


def _changes(state: "State", found: Mapping[_Key, int]) -> tuple[Change, ...]:
    """Return the changes by kind, name and resource, with what each amount is in *world*."""
    changes = []
    for (kind, name, resource), after in sorted(found.items(), key=lambda item: (item[0][0] != "queue", item[0])):
        if kind == "cluster":
            before = state.ledger.site(ClusterName(name)).allocatable.get(resource, 0)
        else:
            queue = state.queues.get(QueueName(name))
            before = queue.capability.get(resource, 0) if queue is not None else 0
        changes.append(Change(kind, name, resource, before, after))
    return tuple(changes)


def _required_amounts(trial: "State", uid: WorkloadUid) -> Iterator[tuple[_Key, int]]:
    """Yield the amounts that must be larger: of the closest clusters, and once these have room of the queues."""
    lane, standing = trial.backlog.lane(uid), trial.standing
    short = [(gap.cluster, name, lack) for gap in cluster_gaps(trial, lane.shape) for name, lack in gap.missing.items()]
    for cluster, name, lack in short:
        yield ("cluster", cluster, name), trial.ledger.site(cluster).allocatable.get(name, 0) + lack
    node = trial.tree().nodes.get(lane.queue)
    if short or standing is None or node is None:
        return
    quotas = [quota for quota in (standing.quota, trial.books.present()) if quota is not None]
    faults = [(quota, fault) for quota in quotas for fault in quota.faults(quota.tree.nodes[lane.queue], lane.charge)]
    if not faults and lane.hopeless is not None and lane.hopeless.reason is Reason.EXCEEDS_QUEUE_LIMIT:
        faults = [(standing.quota, lane.hopeless)]
    for quota, fault in faults:
        by = (fault.asked or 0) - (fault.available or 0)
        growth = _LimitIncrease(trial, quota, lane)
        yield from growth.amounts(quota.tree.nodes[QueueName(fault.queue or ROOT)], fault.resource or "", by)


class _LimitIncrease:
    """By how much what limits a queue must grow: its capability, its ancestors', the clusters."""

    def __init__(self, state: "State", quota: Quota, lane: WorkloadClass) -> None:
        self._world = state
        self._quota = quota
        self._lane = lane

    def amounts(self, node: Node, resource: str, by: int) -> Iterator[tuple[_Key, int]]:
        """Yield what lifts the limit of *node* on *resource*."""
        wanted = self._limit(node, resource) + by
        own = node.queue.capability.get(resource)
        if own is not None and own < wanted:
            yield ("queue", node.name, resource), wanted
        if node.parent is None:
            pool = self._world.ledger.pool().get(resource, 0)
            yield from self._cluster_amount(resource, wanted - pool)
            return
        siblings = sum(
            self._quota.limits[each.name].guarantee.get(resource, 0)
            for each in node.parent.children
            if each is not node
        )
        lack = wanted + siblings - self._limit(node.parent, resource)
        if lack > 0:
            yield from self.amounts(node.parent, resource, lack)

    def _limit(self, node: Node, resource: str) -> int:
        return self._quota.limits[node.name].ceiling.get(resource, 0)

    def _cluster_amount(self, resource: str, by: int) -> Iterator[tuple[_Key, int]]:
        """Yield what one cluster must have more: where the workload would go, else its first candidate."""
        prospects = self._world.books.feasibility_cache
        prospect = prospects.get(self._lane.shape)
        choice = prospects.choose(prospect)
        names = [each.cluster for each in choice.bookings] if isinstance(choice, Choice) else prospect.candidates.names
        if by > 0 and names:
            site = self._world.ledger.site(names[0])
            yield ("cluster", site.name, resource), site.allocatable.get(resource, 0) + by


def _try_with_other_workloads(
    state: "State", uid: WorkloadUid, now: int, *, plan: Plan, changes: tuple[Change, ...]
) -> Remedy:
    """Return *changes* with what they do not include: tried beside all others, before *plan* was carried out."""
    workloads = workloads_before(state, plan)
    if sum(each.state is WorkloadState.PENDING for each in workloads) > _MAX_PENDING:
        return Remedy(changes, is_complete=False, refusal=state.refusal(uid))
    trial = rebuild_state(state, state.policy, workloads, now)
    apply_changes(trial, changes, now)
    plan_until_stable(trial, now)
    if trial.workloads[uid].state is WorkloadState.ADMITTED:
        return Remedy(changes, is_complete=True)
    taken = [
        each
        for each in trial.workloads.values()
        if each.state is WorkloadState.ADMITTED and state.workloads[each.uid].state is WorkloadState.PENDING
    ]
    return Remedy(changes, is_complete=False, others=tuple(sorted(taken, key=order_key)), refusal=trial.refusal(uid))


def workloads_before(state: "State", plan: Plan) -> list[Workload]:
    """Return the workloads of *world* as they were when *plan* began."""
    changed = {each.workload.uid: each.workload for each in reversed((*plan.decisions, *plan.notes))}
    return [changed.get(uid, workload) for uid, workload in state.workloads.items()]
