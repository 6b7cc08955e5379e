"""Tracks usage, requests and fair shares of the queues.

Usage is tracked twice: *settled* assumes that evictions in progress have
finished and their preemptors are admitted (P5); *current* is usage right now.
The quota is rebuilt only when the tree or its limits change.
"""

from collections.abc import Callable, Iterable, Mapping

from controller.engine.fairness.fair_share import FairShareDivision
from controller.engine.fairness.ordering import QueueShares
from controller.engine.placement.feasibility_cache import FeasibilityCache
from controller.engine.reasons import Refusal
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.hierarchy import ROOT, Queue, QueueName, Tree, closed_guarantees, queue_limits
from controller.engine.state.pending import ClassCounts, PendingWorkloads, WorkloadClass
from controller.engine.state.quota import Quota
from controller.engine.state.resources import Resources, add, nonzero, scale, subtract, total
from controller.engine.steps import Steps

_LimitInputs = tuple[Resources, Resources, dict[QueueName, Resources]]
"""What limits follow from: the root's limit, charges outside the tree, guarantees of closed queues."""


class QueueUsage:
    """Usage by queue, and the fair shares and usage ratios that follow from it.

    Only the methods change the mappings.
    """

    def __init__(self, cluster_usage: ClusterUsage, backlog: PendingWorkloads) -> None:
        self.queues: dict[QueueName, Queue] = {}
        self.settled: dict[QueueName, Resources] = {}
        """Usage after evictions in progress, by the queue that the workloads name, whether it exists or not."""
        self.by_namespace: dict[tuple[QueueName, str], Resources] = {}
        """Settled usage of each namespace in each queue."""
        self.shares: QueueShares | None = None
        """Fair shares and usage ratios; ``None`` until they are first needed."""
        self.feasibility_cache = FeasibilityCache(cluster_usage)
        self._cluster_usage = cluster_usage
        self._pending = backlog
        self._requested: dict[QueueName, Resources] = {}
        self._changed: set[QueueName] = set()
        self._tree: Tree | None = None
        self._class_counts: ClassCounts | None = None
        self._division: FairShareDivision | None = None
        self._potential_quota: Quota | None = None
        self._limit_inputs: _LimitInputs | None = None
        self._closed: dict[QueueName, Resources] = {}
        """Effective guarantees of closed queues, as of the beginning of the cycle."""
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
        self._tree = self._potential_quota = self._limit_inputs = self._current_quota = None

    def delete(self, name: QueueName) -> None:
        """Remove a queue; its charges count at the root from now on."""
        del self.queues[name]
        self._tree = self._potential_quota = self._limit_inputs = self._current_quota = None

    def clusters_changed(self) -> None:
        """Discard feasibility and potential limits: the set of clusters or their properties changed."""
        self.feasibility_cache.clear()
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
        self.settled[queue] = add(self.settled.get(queue, {}), charge)
        self.by_namespace[tenant] = add(self.by_namespace.get(tenant, {}), charge)
        self._changed.add(queue)
        if self.shares is not None and self._limit_inputs is not None:
            node = self.shares.quota.tree.nodes.get(queue, self.shares.quota.tree.root)
            self.shares.quota.add_usage(node, charge)
            self.shares.invalidate(above.name for above in node.path())

    # -- queries -------------------------------------------------------

    @property
    def requested(self) -> Mapping[QueueName, Resources]:
        """Return the requests of each queue: its charges and those of competing workloads, as of ``update_shares``."""
        return self._requested

    def tree(self) -> Tree:
        """Return the present tree of queues."""
        if self._tree is None:
            self._tree = Tree(self.queues.values())
        return self._tree

    def class_counts(self) -> ClassCounts:
        """Return how many workload classes are pending in each part of the tree."""
        tree = self.tree()
        if self._class_counts is None or self._class_counts.tree is not tree:
            self._class_counts = ClassCounts(tree, self._pending.classes())
            self._pending.on_class_change = self._class_counts.add
        return self._class_counts

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
            given = self._cluster_usage.current_root_limit(), _charges_outside(tree, charged), self._closed
            self._current_quota = given, Quota(tree, queue_limits(tree, *given), charged)
        return self._current_quota[1]

    def _drop_stale_current_quota(self) -> None:
        """Discard the quota with current usage when its limits have changed."""
        if self._current_quota is None:
            return
        if self._current_quota[0] != (
            self._cluster_usage.current_root_limit(),
            _charges_outside(self.tree(), self.current_usage()),
            self._closed,
        ):
            self._current_quota = None

    def quota(self) -> Quota:
        """Return the quota with settled usage and the limits of the present clusters."""
        tree = self.tree()
        given = self._cluster_usage.root_limit(), _charges_outside(tree, self.settled), self._closed
        if self.shares is None or self._limit_inputs != given:
            self._generation += 1
            quota = Quota(tree, queue_limits(tree, *given), self.settled, epoch=self._generation)
            self._limit_inputs, self._division = given, None
            self.shares = QueueShares(quota, {}, self.by_namespace)
        return self.shares.quota

    def classify(
        self, again: Iterable[WorkloadClass], on_hold: Callable[[WorkloadClass], Refusal | None]
    ) -> Steps[list[WorkloadClass]]:
        """Find the classes that are pending for another reason than capacity; return the classes evaluated.

        All are evaluated again when queues or clusters have changed, otherwise only
        new classes and those in *again*. *on_hold* returns reasons that depend on neither.
        """
        classes = dict.fromkeys([*self._pending.unevaluated, *again])
        tree = self.tree()
        self._closed = closed_guarantees(tree, self.settled)
        if self._potential_quota is None:
            self._potential_quota = Quota(tree, queue_limits(tree, self._cluster_usage.potential_root_limit()), {})
            classes |= dict.fromkeys(self._pending.classes())
        for workload_class in classes:
            workload_class.charge = self.feasibility_cache.get(workload_class.requirements).charge
            workload_class.inadmissible = (
                tree.refusal(workload_class.queue)
                or self._inadmissible(self._potential_quota, workload_class)
                or on_hold(workload_class)
            )
            self._changed.add(workload_class.queue)
            yield 1
        self._pending.unevaluated.clear()
        return list(classes)

    def _inadmissible(self, potential: Quota, workload_class: WorkloadClass) -> Refusal | None:
        """Return why no capacity would ever admit *workload_class*, or ``None`` (C5).

        While no cluster has a resource summary, limits that follow from capacity are not reported.
        """
        exceeded = potential.exceeded_limit(potential.tree.nodes[workload_class.queue], workload_class.charge)
        if exceeded is not None and self._cluster_usage.is_unknown:
            exceeded = None
        return exceeded or self.feasibility_cache.get(workload_class.requirements).candidates.refusal

    def update_shares(self) -> QueueShares:
        """Return fair shares and usage ratios after all changes (Q4)."""
        quota = self.quota()
        self._drop_stale_current_quota()
        changed = self._changed | self._pending.changed
        for name in changed:
            self._requested[name] = self._queue_requests(name)
        if self.shares is None:
            raise AssertionError("update_shares needs a quota")
        if self._division is None:
            self._division = FairShareDivision(quota, self._requested)
            self.shares = QueueShares(quota, self._division.shares, self.by_namespace)
        else:
            others = {ROOT} if any(name not in quota.tree.nodes for name in changed) else set()
            self.shares.fair_shares_changed(self._division.update(self._requested, changed | others))
        self._changed = set()
        self._pending.changed = set()
        return self.shares

    def _queue_requests(self, queue: QueueName) -> Resources:
        """Return a queue's requests: its charges, and those of its classes that only capacity holds back."""
        requests = self.settled.get(queue, {})
        for workload_class in self._pending.queues.get(queue, ()):
            if workload_class.inadmissible is None and workload_class.nominated_cluster is None:
                requests = add(requests, scale(workload_class.charge, len(workload_class.workloads)))
        return requests


def _charges_outside(tree: Tree, charges: Mapping[QueueName, Resources]) -> Resources:
    """Return the charges on the root itself and on queues that are not part of the tree."""
    return total(charge for name, charge in charges.items() if name == ROOT or name not in tree.nodes)
