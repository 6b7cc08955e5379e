"""What the queues hold, want and are entitled to, kept up to date charge by charge.

Built anew only when the tree or its ceilings change; clusters are ``ledger``,
who waits is ``backlog``. While workloads leave, it is decided as if they were
gone and those they leave for were in (P5): the books are kept *settled*, with
a second set for what is charged at *present*.
"""

from collections.abc import Callable, Iterable, Mapping

from controller.engine.class_counts import ClassCounts
from controller.engine.cluster_usage import ClusterUsage
from controller.engine.fair_share import FairShareDivision
from controller.engine.feasibility_cache import FeasibilityCache
from controller.engine.ordering import QueueShares
from controller.engine.pending import PendingWorkloads, WorkloadClass
from controller.engine.queues import ROOT, Queue, QueueName
from controller.engine.quota import Quota
from controller.engine.reasons import Refusal
from controller.engine.resources import Resources, add, nonzero, scale, subtract, total
from controller.engine.steps import Steps
from controller.engine.tree import Tree, closed_guarantees, queue_limits

_Given = tuple[Resources, Resources, dict[QueueName, Resources]]
"""What limits follow from: the pool, the charges outside the tree, the guarantees of closed queues."""


class QueueUsage:
    """The charges by queue, and how the queues stand by them.

    The mappings are for those who report; only the methods change them.
    """

    def __init__(self, ledger: ClusterUsage, backlog: PendingWorkloads) -> None:
        self.queues: dict[QueueName, Queue] = {}
        self.settled: dict[QueueName, Resources] = {}
        """Charges by the queue that the workloads name, whether it exists or not, once all evictions are done."""
        self.by_namespace: dict[tuple[QueueName, str], Resources] = {}
        """Charges of each namespace in each queue."""
        self.shares: QueueShares | None = None
        """How the queues stand; ``None`` until it is asked for first."""
        self.feasibility_cache = FeasibilityCache(ledger)
        self._cluster_usage = ledger
        self._pending = backlog
        self._requested: dict[QueueName, Resources] = {}
        self._changed: set[QueueName] = set()
        self._tree: Tree | None = None
        self._class_counts: ClassCounts | None = None
        self._division: FairShareDivision | None = None
        self._potential_quota: Quota | None = None
        self._limit_inputs: _Given | None = None
        self._closed: dict[QueueName, Resources] = {}
        """What counts of the guarantees of queues that take no workloads, as of the beginning of the cycle."""
        self._generation = 0
        self._in_transition: dict[QueueName, Resources] = {}
        """What present charges are beyond the settled ones, by queue; negative for what is only held."""
        self._transitions = 0
        """How many leave, or are held for."""
        self._current_quota: tuple[_Given, Quota] | None = None

    # -- what is told ---------------------------------------------------

    def upsert(self, queue: Queue) -> None:
        """Take *queue* as it is now."""
        self.queues[queue.name] = queue
        self._tree = self._potential_quota = self._limit_inputs = self._current_quota = None

    def delete(self, name: QueueName) -> None:
        """Forget a queue; its charges count at the root from now on."""
        del self.queues[name]
        self._tree = self._potential_quota = self._limit_inputs = self._current_quota = None

    def clusters_changed(self) -> None:
        """Ask anew what each shape can hope for: a cluster is another one than before."""
        self.feasibility_cache.clear()
        self._potential_quota = None

    def add_usage(self, queue: QueueName, namespace: str, charge: Resources) -> None:
        """Charge a queue for one of its tenants."""
        self._add_settled(queue, namespace, charge)
        self._add_current(queue, charge)

    def remove_usage(self, queue: QueueName, namespace: str, charge: Resources) -> None:
        """Take a charge off again."""
        self.add_usage(queue, namespace, scale(charge, -1))

    def begin_eviction(self, queue: QueueName, namespace: str, charge: Resources) -> None:
        """Take a charge for as good as free: its workload has been evicted."""
        self._add_transition(queue, namespace, scale(charge, -1), count=1)

    def end_eviction(self, queue: QueueName, namespace: str, charge: Resources) -> None:
        """Take back ``depart``: the workload is gone, or it stays after all."""
        self._add_transition(queue, namespace, charge, count=-1)

    def nominate(self, queue: QueueName, namespace: str, demand: Resources) -> None:
        """Take what is held for somebody for charged."""
        self._add_transition(queue, namespace, demand, count=1)

    def unnominate(self, queue: QueueName, namespace: str, demand: Resources) -> None:
        """Take back ``hold``: it was let in, or nothing is held for it any more."""
        self._add_transition(queue, namespace, scale(demand, -1), count=-1)

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

    # -- what is asked --------------------------------------------------

    @property
    def requested(self) -> Mapping[QueueName, Resources]:
        """Return the demand of each queue as of the last ``stand``: its charges, and what only room holds back."""
        return self._requested

    def tree(self) -> Tree:
        """Return the tree of the queues as they are now."""
        if self._tree is None:
            self._tree = Tree(self.queues.values())
        return self._tree

    def class_counts(self) -> ClassCounts:
        """Return who waits where in the tree."""
        tree = self.tree()
        if self._class_counts is None or self._class_counts.tree is not tree:
            self._class_counts = ClassCounts(tree, self._pending.classes())
            self._pending.on_class_change = self._class_counts.add
        return self._class_counts

    @property
    def has_transitions(self) -> bool:
        """Say whether somebody leaves, or somebody is held for."""
        return self._transitions > 0

    def current_usage(self) -> Mapping[QueueName, Resources]:
        """Return the charges as they are now, by the queue that the workloads name."""
        away = {
            name: add(self.settled.get(name, {}), amounts) for name, amounts in self._in_transition.items() if amounts
        }
        return {**self.settled, **away} if away else self.settled

    def current_quota(self) -> Quota | None:
        """Return the charges on the tree as they are now; ``None`` where the settled ones are the same."""
        if not self._transitions:
            return None
        if self._current_quota is None:
            charged, tree = self.current_usage(), self.tree()
            given = self._cluster_usage.current_root_limit(), _outside(tree, charged), self._closed
            self._current_quota = given, Quota(tree, queue_limits(tree, *given), charged)
        return self._current_quota[1]

    def _drop_stale_current_quota(self) -> None:
        """Give up the present quota where its ceilings do not hold any more."""
        if self._current_quota is None:
            return
        if self._current_quota[0] != (
            self._cluster_usage.current_root_limit(),
            _outside(self.tree(), self.current_usage()),
            self._closed,
        ):
            self._current_quota = None

    def quota(self) -> Quota:
        """Return the settled charges on the tree, with the ceilings of the present clusters."""
        tree = self.tree()
        given = self._cluster_usage.root_limit(), _outside(tree, self.settled), self._closed
        if self.shares is None or self._limit_inputs != given:
            self._generation += 1
            quota = Quota(tree, queue_limits(tree, *given), self.settled, epoch=self._generation)
            self._limit_inputs, self._division = given, None
            self.shares = QueueShares(quota, {}, self.by_namespace)
        return self.shares.quota

    def classify(
        self, again: Iterable[WorkloadClass], held: Callable[[WorkloadClass], Refusal | None]
    ) -> Steps[list[WorkloadClass]]:
        """Find out who waits for another reason than room; return the lanes for which that was asked.

        All are asked again when queues or clusters have changed, else only new
        ones and those named. *held* tells of reasons that are not the queues'
        or the clusters'.
        """
        lanes = dict.fromkeys([*self._pending.unevaluated, *again])
        tree = self.tree()
        self._closed = closed_guarantees(tree, self.settled)
        if self._potential_quota is None:
            self._potential_quota = Quota(tree, queue_limits(tree, self._cluster_usage.potential_root_limit()), {})
            lanes |= dict.fromkeys(self._pending.classes())
        for lane in lanes:
            lane.charge = self.feasibility_cache.get(lane.requirements).charge
            lane.inadmissible = (
                tree.refusal(lane.queue) or self._inadmissible(self._potential_quota, lane) or held(lane)
            )
            self._changed.add(lane.queue)
            yield 1
        self._pending.unevaluated.clear()
        return list(lanes)

    def _inadmissible(self, potential: Quota, lane: WorkloadClass) -> Refusal | None:
        """Return why no room would ever help *lane*, or ``None`` (C5).

        While no cluster has told what it has, nothing is said of ceilings that follow from it.
        """
        exceeded = potential.exceeded_limit(potential.tree.nodes[lane.queue], lane.charge)
        if exceeded is not None and self._cluster_usage.is_unknown:
            exceeded = None
        return exceeded or self.feasibility_cache.get(lane.requirements).candidates.refusal

    def update_shares(self) -> QueueShares:
        """Return how the queues stand, entitlements included (Q4)."""
        quota = self.quota()
        self._drop_stale_current_quota()
        changed = self._changed | self._pending.changed
        for name in changed:
            self._requested[name] = self._queue_requests(name)
        if self.shares is None:
            raise AssertionError("the quota comes with a standing")
        if self._division is None:
            self._division = FairShareDivision(quota, self._requested)
            self.shares = QueueShares(quota, self._division.shares, self.by_namespace)
        else:
            others = {ROOT} if any(name not in quota.tree.nodes for name in changed) else set()
            self.shares.invalidate(self._division.update(self._requested, changed | others))
        self._changed = set()
        self._pending.changed = set()
        return self.shares

    def _queue_requests(self, queue: QueueName) -> Resources:
        """Return a queue's demand: its charges, and those of its lanes that only room holds back."""
        demand = self.settled.get(queue, {})
        for lane in self._pending.queues.get(queue, ()):
            if lane.inadmissible is None and lane.nominated_cluster is None:
                demand = add(demand, scale(lane.charge, len(lane.workloads)))
        return demand


def _outside(tree: Tree, charges: Mapping[QueueName, Resources]) -> Resources:
    """Return what is charged to the root itself, and to queues that do not hang on it."""
    return total(charge for name, charge in charges.items() if name == ROOT or name not in tree.nodes)
