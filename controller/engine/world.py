"""The World: all the engine knows, changed by small explicit events only.

Whoever feeds it tells the whole present truth about one thing at a time and
then asks for a Plan. What a Plan admits is booked in the World at once, as if
the write had already happened; a write that fails is told as the workload's
old truth again.
"""

from collections.abc import Iterator
from dataclasses import replace
from heapq import heappop, heappush

from controller.engine import cycle
from controller.engine.backlog import Backlog, Lane, place
from controller.engine.clusters import Cluster, ClusterName
from controller.engine.ledger import Ledger
from controller.engine.outlook import Outlook, outlook
from controller.engine.plan import Plan
from controller.engine.policy import Policy
from controller.engine.queues import ROOT, Queue, QueueName
from controller.engine.quota import Quota
from controller.engine.reasons import Reason, Refusal, precedence
from controller.engine.resources import Resources, add, subtract, total
from controller.engine.tree import Tree, limits
from controller.engine.workloads import Admission, State, Workload, WorkloadUid


class World:
    """Queues, clusters and workloads, and the decisions that follow from them.

    The attributes are for the cycle and for those who report; only the event
    methods change them.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.queues: dict[QueueName, Queue] = {}
        self.ledger = Ledger()
        self.workloads: dict[WorkloadUid, Workload] = {}
        self.backlog = Backlog()
        self.held: dict[QueueName, dict[WorkloadUid, Refusal]] = {}
        """Who waits for reasons of his own, by queue."""
        self.charged: dict[QueueName, Resources] = {}
        """Charges by the queue that the workloads name, whether it exists or not."""
        self.tenants: dict[tuple[QueueName, str], Resources] = {}
        """Charges of each namespace in each queue."""
        self.blocking: dict[QueueName, Workload] = {}
        """The head that blocks each fifo queue, as of the last cycle."""
        self.told: dict[WorkloadUid, Reason] = {}
        """The reason that each waiting workload was last given."""
        self.standing: cycle.Standing | None = None
        """How the queues stood at the end of the last cycle."""
        self._is_news = True
        """Whether anything was told since the last plan that a decision could depend on."""
        self._wake_at: int | None = None
        self._tree: Tree | None = None
        self._releases: list[tuple[int, WorkloadUid]] = []
        self._outlooks: dict[int, tuple[object, Outlook]] = {}

    # -- what is told ---------------------------------------------------

    def policy_changed(self, policy: Policy) -> None:
        """Use *policy* from the next plan on."""
        self.policy = policy
        self._is_news = True
        for workload in [each for each in self.workloads.values() if each.state is State.PENDING]:
            self._leave(workload)
            self._wait(workload)

    def queue_changed(self, queue: Queue) -> None:
        """Take *queue* as it is now, new or changed."""
        if self.queues.get(queue.name) != queue:
            self.queues[queue.name] = queue
            self._tree = None
            self._is_news = True

    def queue_removed(self, name: QueueName) -> None:
        """Forget a queue; what it has admitted stays charged at the root."""
        if self.queues.pop(name, None) is not None:
            self._tree = None
            self._is_news = True

    def cluster_changed(self, cluster: Cluster, now: int) -> None:
        """Take *cluster* as it is at *now*, new or changed."""
        site = self.ledger.site(cluster.name)
        before, foreign = site.cluster, site.foreign
        self.ledger.see(cluster, now, self.policy.settle_ms)
        if before is None or replace(before, used=cluster.used) != cluster:
            self._outlooks.clear()
            self._is_news = True
        elif site.foreign != foreign:
            self._is_news = True

    def cluster_removed(self, name: ClusterName) -> None:
        """Forget a cluster; what is booked there stays charged until its workloads say otherwise."""
        self.ledger.lose(name)
        self._outlooks.clear()
        self._is_news = True

    def workload_changed(self, workload: Workload, now: int) -> None:
        """Take *workload* as it is at *now*, new or changed."""
        before = self.workloads.get(workload.uid)
        if before == workload:
            return
        if before is None or before.state is not State.ADMITTED or not _same_books(before, workload):
            self._is_news = True
        if before is not None and before.state is State.PENDING:
            self._leave(before)
        self._rebook(before, workload, now)
        self.workloads[workload.uid] = workload
        if workload.state is State.PENDING:
            self._wait(workload)
        else:
            self.told.pop(workload.uid, None)

    def workload_removed(self, uid: WorkloadUid, now: int) -> None:
        """Forget a workload and free what it held."""
        before = self.workloads.pop(uid, None)
        if before is None:
            return
        self._is_news = True
        if before.state is State.PENDING:
            self._leave(before)
        if before.admission is not None:
            self._free(before, before.admission, now)
        self.told.pop(uid, None)

    # -- what is asked --------------------------------------------------

    def plan(self, now: int) -> Plan:
        """Decide at *now*, book what is admitted, and return what changed.

        Nothing is looked at while there is no news and nothing has come due.
        """
        is_due = self._wake_at is not None and self._wake_at <= now
        if not self._is_news and not is_due:
            return Plan(wake_at=self._wake_at)
        self._release(now)
        plan = cycle.run(self, now)
        self._is_news = False
        self._wake_at = plan.wake_at
        return plan

    def tree(self) -> Tree:
        """Return the tree of the queues as they are now."""
        if self._tree is None:
            self._tree = Tree(self.queues.values())
        return self._tree

    def quota(self) -> Quota:
        """Return the charges on the tree, with the ceilings of the present clusters."""
        tree = self.tree()
        taken = total(charge for name, charge in self.charged.items() if name == ROOT or name not in tree.nodes)
        return Quota(tree, limits(tree, self.ledger.pool(), taken), self.charged)

    def outlook(self, lane: Lane) -> Outlook:
        """Return what the shape of *lane* can hope for from the present clusters."""
        known = self._outlooks.get(id(lane.shape))
        if known is None:
            # The shape is kept beside its outlook so that its id stays its own.
            known = self._outlooks[id(lane.shape)] = lane.shape, outlook(lane.shape, self.ledger)
        return known[1]

    def refusal(self, uid: WorkloadUid) -> Refusal | None:
        """Return why a workload waits as of the last cycle, ``None`` where it does not wait."""
        workload = self.workloads.get(uid)
        if workload is None or workload.state is not State.PENDING:
            return None
        own = self.held.get(workload.queue, {}).get(uid)
        if own is not None:
            closed = self.tree().refusal(workload.queue)
            return own if closed is None else min(closed, own, key=precedence)
        lane = self.backlog.lane(uid)
        head = self.blocking.get(workload.queue)
        if head is None or head.uid == uid or lane.refusal is None or not lane.refusal.is_about_room:
            return lane.refusal
        return Refusal(Reason.BEHIND_HEAD, queue=workload.queue, subject=head.path)

    def waiting(self, queue: QueueName) -> list[Workload]:
        """Return everyone who waits in *queue*, held ones included, in order (O2) as of the last cycle."""
        held = [self.workloads[uid] for uid in self.held.get(queue, ())]
        everyone = sorted([*self.backlog.in_order(queue), *held], key=place)
        standing = self.standing
        if self.policy.tenant_fairness == "None" or standing is None or queue not in standing.entitlements:
            return everyone
        shares = {each.namespace: standing.tenant_share(queue, each.namespace) for each in everyone}
        return sorted(everyone, key=lambda each: (-each.priority, shares[each.namespace]))

    def waiting_queues(self) -> Iterator[QueueName]:
        """Yield the queues in which somebody waits, by name."""
        yield from sorted({*self.backlog.queues, *(name for name, held in self.held.items() if held)})

    def release_at(self) -> int | None:
        """Return when the next hold ends, or ``None``; it may be early, never late."""
        return self._releases[0][0] if self._releases else None

    # -- what is done ---------------------------------------------------

    def admit(self, workload: Workload, admission: Admission, now: int) -> None:
        """Book an admission that was just decided."""
        self.workload_changed(replace(workload, state=State.ADMITTED, admission=admission, hold=None), now)

    def _wait(self, workload: Workload) -> None:
        forbidden = self.policy.refusal(workload.namespace, workload.queue, workload.priority_class)
        refusal = min(filter(None, (workload.hold, forbidden)), key=precedence, default=None)
        if refusal is None:
            self.backlog.add(workload)
        else:
            self.held.setdefault(workload.queue, {})[workload.uid] = refusal
            if refusal.until is not None:
                heappush(self._releases, (refusal.until, workload.uid))

    def _release(self, now: int) -> None:
        """Let those compete again whose hold has ended by *now*."""
        while self._releases and self._releases[0][0] <= now:
            _, uid = heappop(self._releases)
            workload = self.workloads.get(uid)
            if workload is None or uid not in self.held.get(workload.queue, {}):
                continue
            until = self.held[workload.queue][uid].until
            if until is not None and until <= now:
                self._leave(workload)
                self.workloads[uid] = replace(workload, hold=None)
                self._wait(self.workloads[uid])

    def _leave(self, workload: Workload) -> None:
        if workload.uid in self.backlog:
            self.backlog.remove(workload)
        else:
            self.held[workload.queue].pop(workload.uid)

    def _rebook(self, before: Workload | None, workload: Workload, now: int) -> None:
        old = before.admission if before else None
        new = workload.admission
        if before is not None and old is not None and new is not None and _same_books(before, workload):
            self._is_news |= self.ledger.show(old, new, now)
            return
        if before is not None and old is not None:
            self._free(before, old, now)
        if new is not None:
            self._book(workload, new, now)

    def _book(self, workload: Workload, admission: Admission, now: int) -> None:
        self.ledger.book(admission, now)
        tenant = workload.queue, workload.namespace
        self.charged[workload.queue] = add(self.charged.get(workload.queue, {}), admission.charge)
        self.tenants[tenant] = add(self.tenants.get(tenant, {}), admission.charge)

    def _free(self, workload: Workload, admission: Admission, now: int) -> None:
        self.ledger.free(admission, now)
        tenant = workload.queue, workload.namespace
        self.charged[workload.queue] = subtract(self.charged[workload.queue], admission.charge)
        self.tenants[tenant] = subtract(self.tenants[tenant], admission.charge)


def _same_books(before: Workload, workload: Workload) -> bool:
    """Say whether both hold the same charges in the same places."""
    return (
        before.admission is not None
        and workload.admission is not None
        and (before.state, before.queue, before.namespace) == (workload.state, workload.queue, workload.namespace)
        and before.admission.charge == workload.admission.charge
        and set(_places(before.admission)) == set(_places(workload.admission))
    )


def _places(admission: Admission) -> Iterator[tuple[ClusterName, tuple[tuple[str, int], ...]]]:
    """Yield what each cluster is booked with; their order means nothing."""
    for booking in admission.bookings:
        yield booking.cluster, tuple(sorted(booking.charge.items()))
