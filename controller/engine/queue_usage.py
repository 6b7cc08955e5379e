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
        self.tenants: dict[tuple[QueueName, str], Resources] = {}
        """Charges of each namespace in each queue."""
        self.standing: QueueShares | None = None
        """How the queues stand; ``None`` until it is asked for first."""
        self.feasibility_cache = FeasibilityCache(ledger)
        self._ledger = ledger
        self._backlog = backlog
        self._wanted: dict[QueueName, Resources] = {}
        self._changed: set[QueueName] = set()
        self._tree: Tree | None = None
        self._census: ClassCounts | None = None
        self._division: FairShareDivision | None = None
        self._potential: Quota | None = None
        self._given: _Given | None = None
        self._closed: dict[QueueName, Resources] = {}
        """What counts of the guarantees of queues that take no workloads, as of the beginning of the cycle."""
        self._epoch = 0
        self._away: dict[QueueName, Resources] = {}
        """What present charges are beyond the settled ones, by queue; negative for what is only held."""
        self._moving = 0
        """How many leave, or are held for."""
        self._present: tuple[_Given, Quota] | None = None

    # -- what is told ---------------------------------------------------

    def put(self, queue: Queue) -> None:
        """Take *queue* as it is now."""
        self.queues[queue.name] = queue
        self._tree = self._potential = self._given = self._present = None

    def drop(self, name: QueueName) -> None:
        """Forget a queue; its charges count at the root from now on."""
        del self.queues[name]
        self._tree = self._potential = self._given = self._present = None

    def forget_clusters(self) -> None:
        """Ask anew what each shape can hope for: a cluster is another one than before."""
        self.feasibility_cache.clear()
        self._potential = None

    def book(self, queue: QueueName, namespace: str, charge: Resources) -> None:
        """Charge a queue for one of its tenants."""
        self._settle(queue, namespace, charge)
        self._book_at_present(queue, charge)

    def free(self, queue: QueueName, namespace: str, charge: Resources) -> None:
        """Take a charge off again."""
        self.book(queue, namespace, scale(charge, -1))

    def depart(self, queue: QueueName, namespace: str, charge: Resources) -> None:
        """Take a charge for as good as free: its workload has been evicted."""
        self._move(queue, namespace, scale(charge, -1), count=1)

    def rejoin(self, queue: QueueName, namespace: str, charge: Resources) -> None:
        """Take back ``depart``: the workload is gone, or it stays after all."""
        self._move(queue, namespace, charge, count=-1)

    def hold(self, queue: QueueName, namespace: str, demand: Resources) -> None:
        """Take what is held for somebody for charged."""
        self._move(queue, namespace, demand, count=1)

    def release(self, queue: QueueName, namespace: str, demand: Resources) -> None:
        """Take back ``hold``: it was let in, or nothing is held for it any more."""
        self._move(queue, namespace, scale(demand, -1), count=-1)

    def _move(self, queue: QueueName, namespace: str, charge: Resources, *, count: int) -> None:
        self._moving += count
        self._away[queue] = nonzero(subtract(self._away.get(queue, {}), charge))
        self._settle(queue, namespace, charge)
        if not self._moving:
            self._present = None
            self._away = {}

    def _book_at_present(self, queue: QueueName, charge: Resources) -> None:
        if self._present is not None:
            quota = self._present[1]
            quota.book(quota.tree.nodes.get(queue, quota.tree.root), charge)

    def _settle(self, queue: QueueName, namespace: str, charge: Resources) -> None:
        tenant = queue, namespace
        self.settled[queue] = add(self.settled.get(queue, {}), charge)
        self.tenants[tenant] = add(self.tenants.get(tenant, {}), charge)
        self._changed.add(queue)
        if self.standing is not None and self._given is not None:
            node = self.standing.quota.tree.nodes.get(queue, self.standing.quota.tree.root)
            self.standing.quota.book(node, charge)
            self.standing.forget(above.name for above in node.path())

    # -- what is asked --------------------------------------------------

    @property
    def wanted(self) -> Mapping[QueueName, Resources]:
        """Return the demand of each queue as of the last ``stand``: its charges, and what only room holds back."""
        return self._wanted

    def tree(self) -> Tree:
        """Return the tree of the queues as they are now."""
        if self._tree is None:
            self._tree = Tree(self.queues.values())
        return self._tree

    def census(self) -> ClassCounts:
        """Return who waits where in the tree."""
        tree = self.tree()
        if self._census is None or self._census.tree is not tree:
            self._census = ClassCounts(tree, self._backlog.lanes())
            self._backlog.on_lane = self._census.count
        return self._census

    @property
    def is_moving(self) -> bool:
        """Say whether somebody leaves, or somebody is held for."""
        return self._moving > 0

    def charged(self) -> Mapping[QueueName, Resources]:
        """Return the charges as they are now, by the queue that the workloads name."""
        away = {name: add(self.settled.get(name, {}), amounts) for name, amounts in self._away.items() if amounts}
        return {**self.settled, **away} if away else self.settled

    def present(self) -> Quota | None:
        """Return the charges on the tree as they are now; ``None`` where the settled ones are the same."""
        if not self._moving:
            return None
        if self._present is None:
            charged, tree = self.charged(), self.tree()
            given = self._ledger.present_pool(), _outside(tree, charged), self._closed
            self._present = given, Quota(tree, queue_limits(tree, *given), charged)
        return self._present[1]

    def _check_present(self) -> None:
        """Give up the present quota where its ceilings do not hold any more."""
        if self._present is None:
            return
        if self._present[0] != (self._ledger.present_pool(), _outside(self.tree(), self.charged()), self._closed):
            self._present = None

    def quota(self) -> Quota:
        """Return the settled charges on the tree, with the ceilings of the present clusters."""
        tree = self.tree()
        given = self._ledger.pool(), _outside(tree, self.settled), self._closed
        if self.standing is None or self._given != given:
            self._epoch += 1
            quota = Quota(tree, queue_limits(tree, *given), self.settled, epoch=self._epoch)
            self._given, self._division = given, None
            self.standing = QueueShares(quota, {}, self.tenants)
        return self.standing.quota

    def sort_out(
        self, again: Iterable[WorkloadClass], held: Callable[[WorkloadClass], Refusal | None]
    ) -> Steps[list[WorkloadClass]]:
        """Find out who waits for another reason than room; return the lanes for which that was asked.

        All are asked again when queues or clusters have changed, else only new
        ones and those named. *held* tells of reasons that are not the queues'
        or the clusters'.
        """
        lanes = dict.fromkeys([*self._backlog.unjudged, *again])
        tree = self.tree()
        self._closed = closed_guarantees(tree, self.settled)
        if self._potential is None:
            self._potential = Quota(tree, queue_limits(tree, self._ledger.potential()), {})
            lanes |= dict.fromkeys(self._backlog.lanes())
        for lane in lanes:
            lane.charge = self.feasibility_cache.get(lane.shape).charge
            lane.hopeless = tree.refusal(lane.queue) or self._hopeless(self._potential, lane) or held(lane)
            self._changed.add(lane.queue)
            yield 1
        self._backlog.unjudged.clear()
        return list(lanes)

    def _hopeless(self, potential: Quota, lane: WorkloadClass) -> Refusal | None:
        """Return why no room would ever help *lane*, or ``None`` (C5).

        While no cluster has told what it has, nothing is said of ceilings that follow from it.
        """
        exceeded = potential.exceeds(potential.tree.nodes[lane.queue], lane.charge)
        if exceeded is not None and self._ledger.is_unknown:
            exceeded = None
        return exceeded or self.feasibility_cache.get(lane.shape).candidates.refusal

    def stand(self) -> QueueShares:
        """Return how the queues stand, entitlements included (Q4)."""
        quota = self.quota()
        self._check_present()
        changed = self._changed | self._backlog.changed
        for name in changed:
            self._wanted[name] = self._demand(name)
        if self.standing is None:
            raise AssertionError("the quota comes with a standing")
        if self._division is None:
            self._division = FairShareDivision(quota, self._wanted)
            self.standing = QueueShares(quota, self._division.shares, self.tenants)
        else:
            others = {ROOT} if any(name not in quota.tree.nodes for name in changed) else set()
            self.standing.forget(self._division.update(self._wanted, changed | others))
        self._changed = set()
        self._backlog.changed = set()
        return self.standing

    def _demand(self, queue: QueueName) -> Resources:
        """Return a queue's demand: its charges, and those of its lanes that only room holds back."""
        demand = self.settled.get(queue, {})
        for lane in self._backlog.queues.get(queue, ()):
            if lane.hopeless is None and lane.held is None:
                demand = add(demand, scale(lane.charge, len(lane.entries)))
        return demand


def _outside(tree: Tree, charges: Mapping[QueueName, Resources]) -> Resources:
    """Return what is charged to the root itself, and to queues that do not hang on it."""
    return total(charge for name, charge in charges.items() if name == ROOT or name not in tree.nodes)
