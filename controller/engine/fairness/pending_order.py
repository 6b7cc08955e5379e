"""Orders the pending workloads of one queue (O2)."""

from collections.abc import Callable, Collection, Iterable, Iterator
from operator import attrgetter, itemgetter

from controller.engine.fairness.ageing import PriorityAgeing
from controller.engine.fairness.shares import FairShareTracker
from controller.engine.policy import Policy
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.pending import WorkloadClass, order_key
from controller.engine.state.queue_usage import QueueUsage
from controller.engine.state.workload_index import WorkloadIndex
from controller.engine.state.workloads import HyperJobGang, Workload, WorkloadUid


class PendingOrder:
    """The order of pending workloads: priority and the namespace's usage ratio where it counts, then age and name."""

    def __init__(
        self,
        policy: Policy,
        workloads: WorkloadIndex,
        queue_usage: QueueUsage,
        shares: FairShareTracker,
        ageing: PriorityAgeing,
    ) -> None:
        self.policy = policy
        self.workloads = workloads
        self._queue_usage = queue_usage
        self._shares = shares
        self._ageing = ageing

    def blocking_head(self, queue: QueueName) -> Workload | None:
        """Return the head that all others of a fifo queue wait behind; ``None`` for other queues."""
        known = self._queue_usage.queues.get(queue)
        if known is None or not known.fifo:
            return None
        classes = self.workloads.pending.queues.get(queue, ())
        return self.first_of(
            queue, [workload_class for workload_class in classes if workload_class.inadmissible is None]
        )

    def queue_head(self, queue: QueueName) -> Workload | None:
        """Return the first workload of a queue that is not nominated; ``None`` while its eviction is in progress."""
        classes = self.workloads.pending.queues.get(queue, ())
        competing = [
            workload_class
            for workload_class in classes
            if workload_class.inadmissible is None and workload_class.key.nominated_cluster is None
        ]
        first = self.first_of(queue, competing)
        return None if first is None or first.is_being_evicted else first

    def first_of(self, queue: QueueName, classes: Collection[WorkloadClass]) -> Workload | None:
        """Return the first workload of *classes* in the order of their queue."""
        if not classes:
            return None
        if not self._is_by_tenant(queue):
            return min(classes, key=attrgetter("order_key")).head
        heads = [workload_class.head for workload_class in classes]
        return min(heads, key=self._sort_key(queue, heads))

    def pending_workloads(self, queue: QueueName) -> list[Workload]:
        """Return all pending workloads of *queue*, those on hold included, in the order of the last cycle."""
        held = [self.workloads[uid] for uid in self.workloads.on_hold.get(queue, ())]
        workloads = [*self.workloads.pending.in_order(queue), *held]
        if held or self._is_sorted_on_request(queue):
            workloads.sort(key=self._sort_key(queue, workloads))
        return workloads

    def pending_count(self, queue: QueueName) -> int:
        """Return the number of pending workloads of *queue*, those on hold included."""
        return self.workloads.pending.count(queue) + len(self.workloads.on_hold.get(queue, ()))

    def position(self, workload: Workload) -> int:
        """Return the position of a pending workload in its queue, counted from 1."""
        if self._is_sorted_on_request(workload.queue):
            return self.pending_workloads(workload.queue).index(workload) + 1
        own = order_key(workload)
        before = self.workloads.pending.count_before(workload.queue, own)
        return 1 + before + self.workloads.count_held_before(workload.queue, own)

    def has_quick_positions(self, queue: QueueName) -> bool:
        """Return whether ``position`` visits only a few of the queue's workloads."""
        return not self._is_sorted_on_request(queue)

    def positions(self, queue: QueueName, uids: Collection[WorkloadUid]) -> list[tuple[int, Workload]]:
        """Return the pending workloads *uids* of one *queue* with their positions, in their order."""
        # A position costs about as much as listing two workloads for each class; with many classes it is looked up.
        cost = 2 * min(len(self.workloads.pending.queues.get(queue, ())), 20) + 1
        if not self._is_sorted_on_request(queue) and cost * len(uids) < self.pending_count(queue):
            workloads = (self.workloads[uid] for uid in uids)
            return sorted(((self.position(workload), workload) for workload in workloads), key=itemgetter(0))
        everyone = enumerate(self.pending_workloads(queue), start=1)
        return [(position, workload) for position, workload in everyone if workload.uid in uids]

    def queues_with_pending(self) -> Iterator[QueueName]:
        """Yield the queues with pending workloads, by name."""
        on_hold = (name for name, held in self.workloads.on_hold.items() if held)
        yield from sorted({*self.workloads.pending.queues, *on_hold})

    def _is_sorted_on_request(self, queue: QueueName) -> bool:
        return self._is_by_tenant(queue) or self._ageing.may_reorder(queue)

    def _is_by_tenant(self, queue: QueueName) -> bool:
        shares = self._shares.current
        return self.policy.is_by_tenant and shares is not None and queue in shares.fair_shares

    def _sort_key(self, queue: QueueName, workloads: Iterable[Workload]) -> Callable[[Workload], tuple[object, ...]]:
        shares, key_of = self._shares.current, self._ageing.order_key if self._ageing.may_reorder(queue) else order_key
        if shares is None or not self._is_by_tenant(queue):
            return key_of
        ratios = {name: shares.namespace_ratio(queue, name) for name in {workload.namespace for workload in workloads}}
        if self.policy.tenant_fairness == "NamespaceFirst":
            return lambda workload: (ratios[workload.namespace], key_of(workload))
        return lambda workload: (key_of(workload)[0], ratios[workload.namespace], key_of(workload))


class FifoHeads:
    """The heads of fifo queues that HyperJob parts wait behind (O5), each found once; valid for one state.

    A HyperJob that waits behind a head itself holds up no other one: two could wait for each other for ever.
    """

    def __init__(self, order: PendingOrder) -> None:
        self.workloads = order.workloads
        self._order = order
        self._heads: dict[QueueName, Workload | None] = {}

    def before(self, part: Workload) -> Workload | None:
        """Return the head that *part* waits behind, also where a part elsewhere is tried; ``None`` if none."""
        if part.queue not in self._heads:
            head = self._order.blocking_head(part.queue)
            self._heads[part.queue] = None if head is None or self._is_held_up(head.gang) else head
        head = self._heads[part.queue]
        return None if head is None or head.gang == part.gang else head

    def _is_held_up(self, gang: HyperJobGang | None) -> bool:
        """Return whether too few parts of *gang* can start without those behind the heads of fifo queues."""
        gangs = self.workloads.gangs
        if not gangs.is_all_or_nothing(gang):
            return False
        class_of = self.workloads.pending.class_of
        parts = [part for part in self.workloads.pending_parts(gang) if class_of(part.uid).inadmissible is None]
        heads = {queue: self._order.blocking_head(queue) for queue in {part.queue for part in parts}}
        free = sum((head := heads[part.queue]) is None or head.gang == gang for part in parts)
        return free < gangs.missing(gang)
