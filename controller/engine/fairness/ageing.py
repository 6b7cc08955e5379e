"""Raises job priority inside a queue with waiting (O10).

Only the order of workload classes is updated, and only in queues where they differ in priority or namespace: the
workloads of one class have one priority, so that their order is that of their age at any time.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from controller.engine.policy import Ageing, Policy
from controller.engine.reasons import Reason
from controller.engine.state.cluster_state import earliest
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.pending import OrderKey, PendingWorkloads, order_key
from controller.engine.state.workloads import Workload


class PriorityAgeing:
    """The raised priorities of pending workloads, as of the last cycle."""

    def __init__(self, policy: Ageing, pending: PendingWorkloads) -> None:
        self.policy = policy
        self.now = 0
        """When the last cycle began."""
        self.outdated: set[QueueName] = set()
        """Queues whose ceilings the admissions of the last cycle have changed; the next cycle uses the new ones."""
        self._pending = pending
        self._ceilings: dict[QueueName, Mapping[int, int]] = {}
        """The highest raised priority for each priority of pending workloads, by queue."""
        self._next_raise: dict[QueueName, int | None] = {}
        """When the first workload of a class is raised next, of queues whose order may change."""

    def policy_changed(self, policy: Ageing) -> None:
        """Use *policy* for the workloads that are added from now on; none may be pending."""
        self.policy = policy
        self._pending.is_by_priority = policy.is_on
        self._pending.order_keys.clear()
        self.outdated.clear()
        self._ceilings.clear()
        self._next_raise.clear()

    def may_reorder(self, queue: QueueName) -> bool:
        """Return whether waiting may change the order of a queue: its workloads differ in more than age."""
        return queue in self._next_raise

    def update(self, changed: AbstractSet[QueueName], now: int, admitted_so_far: Iterable[Workload]) -> set[QueueName]:
        """Begin a plan: raise priorities, and order the queues with a due raise or outdated ceilings; return these.

        *changed* queues are ordered later. Workloads that cut plans have admitted count as pending until the plan is
        complete.
        """
        if not self.policy.is_on:
            return set()
        self.now = now
        due = {name for name, at in self._next_raise.items() if at is not None and at <= now} | self.outdated
        priorities = {name: self._priorities(name) for name in changed | due}
        for workload in admitted_so_far:
            if workload.queue in priorities:
                priorities[workload.queue].add(workload.priority)
        for name, values in priorities.items():
            self._ceilings[name] = _ceilings(values, self.policy.max_raise)
        self.order(due - changed)
        return due

    def end_cycle(self, changed: Iterable[QueueName]) -> None:
        """Find the queues of *changed* in which other ceilings apply to the workloads that are still pending."""
        self.outdated = {
            name
            for name in (changed if self.policy.is_on else ())
            if _ceilings(self._priorities(name), self.policy.max_raise) != self._ceilings.get(name, {})
        }

    def _priorities(self, queue: QueueName) -> set[int]:
        return {
            workload_class.head.priority
            for workload_class in self._pending.queues.get(queue, ())
            if not workload_class.key.is_being_evicted
        }

    def order(self, changed: Iterable[QueueName]) -> None:
        """Order the classes of *changed* queues; later in a plan, their victims are added."""
        for queue in changed if self.policy.is_on else ():
            classes = self._pending.queues.get(queue, ())
            self._next_raise.pop(queue, None)
            self._pending.order_keys.pop(queue, None)
            if len({(workload_class.key.namespace, workload_class.head.priority) for workload_class in classes}) > 1:
                raises = (
                    self.policy.next_raise(workload_class.head.created_at, self.now) for workload_class in classes
                )
                self._next_raise[queue] = earliest(raises)
                self._pending.order_keys[queue] = self.order_key
            elif not classes:
                self._ceilings.pop(queue, None)
            for workload_class in classes:
                workload_class.order_by(self._pending.order_keys.get(queue, order_key))

    def next_raise(self) -> int | None:
        """Return when the order of a queue may change next."""
        return earliest(self._next_raise.values())

    def priority(self, workload: Workload) -> int:
        """Return the job priority of a pending workload, raised by its waiting."""
        raised_by = self.policy.raised_by(workload.created_at, self.now)
        raised = workload.priority + raised_by
        if raised_by < self.policy.max_raise or not raised_by:
            return raised
        return self._ceilings.get(workload.queue, {}).get(workload.priority, raised)

    def shared_raise(self, workload: Workload) -> int:
        """Return by how much a pending workload is raised, if more than by its own waiting; otherwise 0."""
        if not self.policy.is_on:
            return 0
        raised_by = self.priority(workload) - workload.priority
        return raised_by if raised_by > self.policy.raised_by(workload.created_at, self.now) else 0

    def order_key(self, workload: Workload) -> OrderKey:
        """Return the key that orders workloads inside a queue, with raised priority."""
        _, created_at, namespace, name, uid = order_key(workload)
        return -self.priority(workload), created_at, namespace, name, uid


def admitted_priority(workload: Workload, policy: Ageing) -> int:
    """Return the job priority with which an admitted workload was admitted."""
    admission = workload.admission
    if admission is None or not policy.is_on:
        return workload.priority
    return workload.priority + max(policy.raised_by(workload.created_at, admission.admitted_at), admission.raised_by)


class VictimPriorities:
    """The job priorities of victims: 0 for a higher class that the namespace may not use (Q7).

    The class may have been changed after the admission.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._is_class_refused: dict[tuple[str, QueueName, str], bool] = {}
        """Whether a namespace may not use a PriorityClass in a queue."""

    def of(self, workload: Workload) -> int:
        """Return the job priority of a victim."""
        priority = admitted_priority(workload, self._policy.ageing)
        if priority <= 0 or not self._policy.tenants:
            return priority
        key = workload.namespace, workload.queue, workload.priority_class
        if key not in self._is_class_refused:
            refusal = self._policy.refusal(*key)
            self._is_class_refused[key] = refusal is not None and refusal.reason is Reason.PRIORITY_CLASS_NOT_ALLOWED
        return 0 if self._is_class_refused[key] else priority


def _ceilings(priorities: Iterable[int], max_raise: int) -> dict[int, int]:
    """Return the priority of workloads raised by *max_raise*, by their own priority.

    Those with less than *max_raise* between them share one. A lower one would let younger workloads, which age as
    well, pass an older one for ever.
    """
    ceilings: dict[int, int] = {}
    above: int | None = None
    for priority in sorted(priorities, reverse=True):
        is_near = above is not None and above - priority < max_raise
        ceilings[priority] = ceilings[above] if above is not None and is_near else priority + max_raise
        above = priority
    return ceilings
