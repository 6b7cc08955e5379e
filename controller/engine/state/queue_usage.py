"""Tracks usage of the queues, and the quota that follows from it.

A workload holds its charges until it has stopped (C2). Usage is tracked twice:
*settled* assumes that evictions in progress have finished and their preemptors
are admitted (P5); *current* is usage right now.
The quota is rebuilt only when the tree or its limits change.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import ROOT, Node, Queue, QueueName, Tree, closed_guarantees, queue_limits
from controller.engine.state.orphans import Orphans
from controller.engine.state.quota import Quota
from controller.engine.state.resources import EMPTY, Resources, add, nonzero, positive, scale, subtract, total
from controller.engine.state.workload_changes import has_same_charges
from controller.engine.state.workloads import Admission, Workload, WorkloadState

_LimitInputs = tuple[Resources, Resources, dict[QueueName, Resources]]
"""What limits follow from: the root's limit, charges outside the tree, guarantees of closed queues."""


class QueueUsage:
    """Queues, their usage, and the limits that apply to it.

    Only the methods change the mappings.
    """

    def __init__(self, cluster_usage: ClusterUsage) -> None:
        self.queues: dict[QueueName, Queue] = {}
        self.fifo: set[QueueName] = set()
        """Names of the queues with ``dequeueStrategy: fifo``."""
        self.settled: dict[QueueName, Resources] = {}
        """Usage after evictions in progress, by the queue that the workloads name, whether it exists or not, as far as
        it has any."""
        self.by_namespace: dict[tuple[QueueName, str], Resources] = {}
        """Settled usage of each namespace in each queue, as far as it has any."""
        self.changed: set[QueueName] = set()
        """Queues with other usage since this was last emptied."""
        self.on_usage_change: list[Callable[[Node], None]] = []
        """Called with the node of a queue after its settled usage, and so that of its ancestors, has changed."""
        self.latest_quota: Quota | None = None
        """The quota returned last; ``None`` before the first one."""
        self._cluster_usage = cluster_usage
        self._tree: Tree | None = None
        self._outside: list[QueueName] | None = None
        """The root and the queues outside the tree, as far as they are charged; ``None`` when it must be computed."""
        self._potential_quota: Quota | None = None
        self._limit_inputs: _LimitInputs | None = None
        self._closed: dict[QueueName, Resources] = {}
        """Effective guarantees of closed queues, as of the beginning of the cycle."""
        self._overcommitted: Resources = EMPTY
        """What clusters are charged beyond their capacity, as of the beginning of the cycle."""
        self._generation = 0
        self._in_transition: dict[QueueName, Resources] = {}
        """Current usage less settled usage, by queue; negative for nominations."""
        self._transitions = 0
        """How many workloads are being evicted or nominated."""
        self._current_quota: tuple[_LimitInputs, Quota] | None = None

    # -- events --------------------------------------------------------

    def upsert(self, queue: Queue) -> None:
        """Add or update a queue."""
        self.queues[queue.name] = queue
        (self.fifo.add if queue.fifo else self.fifo.discard)(queue.name)
        self._tree = self._outside = self._potential_quota = self._limit_inputs = self._current_quota = None

    def delete(self, name: QueueName) -> None:
        """Remove a queue; its charges count at the root from now on."""
        del self.queues[name]
        self.fifo.discard(name)
        self._tree = self._outside = self._potential_quota = self._limit_inputs = self._current_quota = None

    def clusters_changed(self) -> None:
        """Discard potential limits: the set of clusters or their properties changed."""
        self._potential_quota = None

    def add_usage(self, queue: QueueName, namespace: str, charge: Resources) -> None:
        """Charge a queue for a workload of one namespace."""
        self._add_settled(queue, namespace, charge)
        self._add_current(queue, charge)

    def remove_usage(self, queue: QueueName, namespace: str, charge: Resources) -> None:
        """Remove a charge."""
        self.add_usage(queue, namespace, scale(charge, -1))

    def begin_eviction(self, queue: QueueName, namespace: str, charge: Resources) -> None:
        """Remove a charge from settled usage: its workload was evicted."""
        self._add_transition(queue, namespace, scale(charge, -1), count=1)

    def end_eviction(self, queue: QueueName, namespace: str, charge: Resources) -> None:
        """Undo ``begin_eviction``: the workload has stopped, or is no longer being evicted."""
        self._add_transition(queue, namespace, charge, count=-1)

    def nominate(self, queue: QueueName, namespace: str, requests: Resources) -> None:
        """Add what a nomination sets aside to settled usage."""
        self._add_transition(queue, namespace, requests, count=1)

    def unnominate(self, queue: QueueName, namespace: str, requests: Resources) -> None:
        """Undo ``nominate``: the workload was admitted or its nomination ended."""
        self._add_transition(queue, namespace, scale(requests, -1), count=-1)

    def _add_transition(self, queue: QueueName, namespace: str, charge: Resources, *, count: int) -> None:
        self._transitions += count
        self._in_transition[queue] = nonzero(subtract(self._in_transition.get(queue, {}), charge))
        self._add_settled(queue, namespace, charge)
        if not self._transitions:
            self._current_quota = None
            self._in_transition = {}

    def _add_current(self, queue: QueueName, charge: Resources) -> None:
        if self._current_quota is not None:
            quota = self._current_quota[1]
            quota.add_usage(quota.tree.nodes.get(queue, quota.tree.root), charge)

    def _add_settled(self, queue: QueueName, namespace: str, charge: Resources) -> None:
        tenant = queue, namespace
        if queue not in self.settled:
            self._outside = None
        if settled := nonzero(add(self.settled.get(queue, {}), charge)):
            self.settled[queue] = settled
        elif self.settled.pop(queue, None) is not None:
            self._outside = None
        if of_namespace := nonzero(add(self.by_namespace.get(tenant, {}), charge)):
            self.by_namespace[tenant] = of_namespace
        else:
            self.by_namespace.pop(tenant, None)
        self.changed.add(queue)
        if self.latest_quota is not None and self._limit_inputs is not None:
            node = self.latest_quota.tree.nodes.get(queue, self.latest_quota.tree.root)
            self.latest_quota.add_usage(node, charge)
            for handler in self.on_usage_change:
                handler(node)

    def forget_deleted(self) -> None:
        """Forget the changed queues without usage, before the first plan."""
        self.changed.intersection_update(self.settled)

    # -- queries -------------------------------------------------------

    def tree(self) -> Tree:
        """Return the present tree of queues."""
        if self._tree is None:
            self._tree = Tree(self.queues.values())
        return self._tree

    @property
    def has_transitions(self) -> bool:
        """Return whether any workload is being evicted or nominated."""
        return self._transitions > 0

    def current_usage(self) -> Mapping[QueueName, Resources]:
        """Return usage right now, by the queue that the workloads name."""
        away = {
            name: add(self.settled.get(name, {}), amounts) for name, amounts in self._in_transition.items() if amounts
        }
        return {**self.settled, **away} if away else self.settled

    def current_quota(self) -> Quota | None:
        """Return the quota with current usage; ``None`` where settled usage is the same."""
        if not self._transitions:
            return None
        if self._current_quota is None:
            charged, tree = self.current_usage(), self.tree()
            given = self._cluster_usage.current_root_limit(), self._charges_outside(charged), self._closed
            self._current_quota = given, Quota(tree, queue_limits(tree, *given), charged)
        return self._current_quota[1]

    def drop_stale_current_quota(self) -> None:
        """Discard the quota with current usage when its limits have changed."""
        if self._current_quota is None:
            return
        if self._current_quota[0] != (
            self._cluster_usage.current_root_limit(),
            self._charges_outside(self.current_usage()),
            self._closed,
        ):
            self._current_quota = None

    def quota(self) -> Quota:
        """Return the quota with settled usage and the limits of the present clusters."""
        tree, capacity = self.tree(), self._cluster_usage.root_limit()
        given = add(capacity, self._overcommitted), self._charges_outside(self.settled), self._closed
        known = capacity if self._overcommitted else None
        if self.latest_quota is None or (self._limit_inputs, self.latest_quota.capacity) != (given, known):
            self._generation += 1
            limits = queue_limits(tree, *given)
            self.latest_quota = Quota(tree, limits, self.settled, generation=self._generation, capacity=known)
            self._limit_inputs = given
        return self.latest_quota

    def _charges_outside(self, charges: Mapping[QueueName, Resources]) -> Resources:
        """Return the *charges* on the root itself and on queues that are not part of the tree."""
        if self._outside is None:
            nodes = self.tree().nodes
            self._outside = [name for name in self.settled if name == ROOT or name not in nodes]
        return total(charges[name] for name in self._outside)

    def update_limit_inputs(self) -> None:
        """Recompute the guarantees of closed queues, which end with their usage (Q3), and what is overcommitted (Q1).

        Both stay as they are while a cycle admits and preempts, because the quota does.
        """
        self._closed = closed_guarantees(self.tree(), self.settled)
        self._overcommitted = self._cluster_usage.overcommitted()

    def potential_quota(self) -> tuple[Quota, bool]:
        """Return the quota with all clusters usable and empty (C5), and whether it is new."""
        if self._potential_quota is not None:
            return self._potential_quota, False
        tree = self.tree()
        self._potential_quota = Quota(tree, queue_limits(tree, self._cluster_usage.potential_root_limit()), {})
        return self._potential_quota, True


class UsageTracker:
    """Adds and removes the charges of workloads, in cluster usage and queue usage at once."""

    def __init__(self, cluster_usage: ClusterUsage, queue_usage: QueueUsage) -> None:
        self.queue_usage = queue_usage
        self._clusters = cluster_usage

    def update(self, before: Workload | None, workload: Workload, now: int) -> bool:
        """Replace the charges of *before* by those of *workload*; return whether external usage may fall then."""
        if before is not None:
            self._clusters.track_resized(before, -1)
        may_fall = self._replace(before, workload, now)
        self._clusters.track_resized(workload, 1)
        return may_fall

    def _replace(self, before: Workload | None, workload: Workload, now: int) -> bool:
        old, new = before.admission if before else None, workload.admission
        if before is None or old is None or new is None or not has_same_charges(before, workload):
            if before is not None:
                self.remove_or_orphan(before, workload, now)
            elif workload.details.last_admission is not None:
                self._clusters.add_recently_freed(workload.details.last_admission, now)
            self.add(workload, now)
            if before is None and new is not None and (new.reported or new.still_running):
                self._clusters.end_external_usage(new)
            return False
        if before.is_being_evicted and not workload.is_being_evicted:
            self._remove_eviction(before, old)
        if workload.is_being_evicted and not before.is_being_evicted:
            self._add_eviction(workload, new)
        return self._clusters.mark_reported(old, new, now)

    def add(self, workload: Workload, now: int) -> None:
        """Add the charges of *workload* and what its nomination sets aside."""
        queue, namespace = workload.queue, workload.namespace
        if workload.admission is not None:
            self._clusters.add_usage(workload.admission, now)
            self.queue_usage.add_usage(queue, namespace, workload.admission.charge)
            if workload.is_being_evicted:
                self._add_eviction(workload, workload.admission)
        elif workload.nomination is not None and workload.is_nominated:
            self._clusters.nominate(workload.nomination.cluster, workload.nomination.requests)
            self.queue_usage.nominate(queue, namespace, workload.nomination.requests)

    def remove(
        self, workload: Workload, now: int, *, successor: Admission | None = None, was_written: bool = True
    ) -> None:
        """Remove the charges of *workload* and what its nomination sets aside; those of *successor* are added next."""
        self._end_transition(workload)
        if workload.admission is not None:
            self._clusters.remove_usage(workload.admission, now, successor=successor, was_written=was_written)
            self.queue_usage.remove_usage(workload.queue, workload.namespace, workload.admission.charge)

    def release(self, workload: Workload, now: int) -> None:
        """Free the queue of *workload*; what it holds on clusters is external usage from now on."""
        self._clusters.track_resized(workload, -1)
        self._end_transition(workload)
        if workload.admission is not None:
            self._clusters.release_usage(workload.admission, now)
            self.queue_usage.remove_usage(workload.queue, workload.namespace, workload.admission.charge)

    def remove_or_orphan(self, before: Workload, after: Workload | None, now: int) -> None:
        """Remove the charges of *before*; where its pods stay running after it is as *after*, orphan them instead."""
        if after is None:
            self._clusters.track_resized(before, -1)
        admission, successor = before.admission, after.admission if after is not None else None
        left = {name for name in _left_running(before, after) if self._clusters.has_cluster(name)}
        if admission is None or not left:
            self.remove(before, now, successor=successor, was_written=not _was_refused(before, after))
            return
        self._end_transition(before)
        orphaned = self._clusters.running_part(_restrict_to(admission, left))
        gone = _without(admission, orphaned)
        self._clusters.remove_usage(gone, now, successor=successor)
        self._clusters.add_orphans(orphaned, before, now)
        self.queue_usage.remove_usage(before.queue, before.namespace, subtract(admission.charge, orphaned.charge))

    def end_orphans(self) -> None:
        """Free the queues of orphaned charges that have ended."""
        for orphan in self._clusters.take_released():
            self.queue_usage.remove_usage(orphan.queue, orphan.namespace, orphan.charge)

    def restore_orphans(self, orphans: Orphans) -> None:
        """Charge queues with *orphans*, which the cluster includes already."""
        for orphan in orphans.charges:
            self.queue_usage.add_usage(orphan.queue, orphan.namespace, orphan.charge)

    def _end_transition(self, workload: Workload) -> None:
        """Undo what the eviction in progress or the nomination of *workload* has changed."""
        if workload.is_being_evicted and workload.admission is not None:
            self._remove_eviction(workload, workload.admission)
        elif workload.is_nominated and workload.nomination is not None:
            self._clusters.unnominate(workload.nomination.cluster, workload.nomination.requests)
            self.queue_usage.unnominate(workload.queue, workload.namespace, workload.nomination.requests)

    def _add_eviction(self, workload: Workload, admission: Admission) -> None:
        self._clusters.add_eviction(admission)
        self.queue_usage.begin_eviction(workload.queue, workload.namespace, admission.charge)

    def _remove_eviction(self, workload: Workload, admission: Admission) -> None:
        self._clusters.remove_eviction(admission)
        self.queue_usage.end_eviction(workload.queue, workload.namespace, admission.charge)


def _was_refused(before: Workload, after: Workload | None) -> bool:
    """Return whether the API server has refused the admission of *before*."""
    is_pending = after is not None and after.state is WorkloadState.PENDING
    return is_pending and before.admission is not None and before.admission.assumed and not before.is_being_evicted


def _left_running(before: Workload, after: Workload | None) -> set[ClusterName]:
    """Return the clusters that a workload has left and where its pods run on: preserved, or with a long grace period.

    A workload that is pending again without having been observed there was never admitted: the write failed.
    """
    runs_on = before.preserved or before.details.has_long_grace_period
    if not runs_on or before.admission is None:
        return set()
    if after is not None and after.state is not WorkloadState.ADMITTED:
        has_failed = after.state is WorkloadState.PENDING and not (before.is_being_evicted or before.has_run)
        if has_failed or after.state is WorkloadState.FINISHED:
            return set()
    remaining = after.admission.clusters if after is not None and after.admission is not None else set()
    return before.admission.clusters - remaining


def _without(admission: Admission, part: Admission) -> Admission:
    rest = {charge.cluster: charge.charge for charge in part.cluster_charges}
    charges = tuple(
        replace(charge, charge=positive(subtract(charge.charge, rest.get(charge.cluster, EMPTY))))
        for charge in admission.cluster_charges
    )
    cluster_charges = tuple(charge for charge in charges if charge.charge)
    return replace(
        admission, cluster_charges=cluster_charges, charge=total(charge.charge for charge in cluster_charges)
    )


def _restrict_to(admission: Admission, clusters: set[ClusterName]) -> Admission:
    cluster_charges = tuple(charge for charge in admission.cluster_charges if charge.cluster in clusters)
    return replace(
        admission, cluster_charges=cluster_charges, charge=total(charge.charge for charge in cluster_charges)
    )
