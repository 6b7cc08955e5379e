"""Tracks pending workloads whose reason changed since it was last published.

New workloads are published at once. Changed reasons affect no decision and may
be many, so a few are published at a time, and no decision has to wait.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from controller.engine import cycle
from controller.engine.plan import Wait
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.pending import WorkloadClass
from controller.engine.state.workloads import Workload, WorkloadUid
from controller.engine.steps import Steps

if TYPE_CHECKING:
    from controller.engine.engine import Engine

#: How many classes are recomputed, and how many workloads published, at a time.
_MAX_CLASSES: Final = 12
_MAX_WORKLOADS: Final = 60
#: The pause before the next ones, in milliseconds.
PAUSE_MS: Final = 20


class PendingReasonUpdater:
    """Recomputes reasons of pending workloads and returns those that changed."""

    def __init__(self, state: "Engine") -> None:
        self._state = state
        self._stale: dict[int, dict[WorkloadClass, None]] = {}
        """Classes to recompute, by the requirements' id: results for requirements are shared by their classes."""
        self._heads: dict[QueueName, WorkloadUid] = {}
        """The head of each fifo queue when it was last computed; its reason differs from the others'."""
        self._changed: dict[QueueName, dict[WorkloadUid, tuple[Workload, Refusal]]] = {}

    @property
    def is_behind(self) -> bool:
        """Return whether some classes still have to be recomputed."""
        return bool(self._stale)

    def mark_stale(self, classes: Iterable[WorkloadClass]) -> None:
        """Recompute the reasons of *classes* later."""
        for workload_class in classes:
            self._stale.setdefault(id(workload_class.requirements), {})[workload_class] = None

    def flush(self) -> Steps[tuple[Wait, ...]]:
        """Return the changed reasons to publish now, by queue and position."""
        self._changed = {}
        for workload_class, uids in self._state.pending.unpublished.items():
            self._publish_new(workload_class, uids)
            yield 1 + len(uids)
        self._state.pending.unpublished.clear()
        for uid in self._state.unpublished:
            self._publish(self._state.workloads[uid], self._state.refusal(uid))
            yield 1
        self._state.unpublished.clear()
        self._recompute_stale()
        changed, self._changed = self._changed, {}
        return tuple(wait for name in sorted(changed) for wait in self._with_positions(name, changed[name]))

    def _publish_new(self, workload_class: WorkloadClass, uids: Collection[WorkloadUid]) -> None:
        """Publish the reason of new workloads of a class; mark the class stale if the others' reason differs."""
        if self._is_behind_head(workload_class):
            self._recompute_head(workload_class.queue)
        refusal, first = self._class_refusal(workload_class), self._head(workload_class)
        for uid in uids:
            if uid != first:
                self._publish(self._state.workloads[uid], refusal)
        if len(uids) == len(workload_class.workloads):
            workload_class.last_reason = refusal.reason if refusal else None
        elif refusal is None or refusal.reason is not workload_class.last_reason:
            self.mark_stale([workload_class])

    def _recompute_stale(self) -> None:
        """Recompute some of the stale classes."""
        left = _MAX_WORKLOADS
        for workload_class in list(islice(chain.from_iterable(self._stale.values()), _MAX_CLASSES)):
            left -= self._recompute(workload_class, left) if workload_class.workloads else 0
            if left <= 0:
                return
            classes = self._stale[id(workload_class.requirements)]
            del classes[workload_class]
            if not classes:
                del self._stale[id(workload_class.requirements)]

    def _recompute(self, workload_class: WorkloadClass, most: int) -> int:
        """Publish up to *most* changed reasons of a class; return how many were published."""
        if self._is_behind_head(workload_class):
            self._recompute_head(workload_class.queue)
        elif cycle.reason(self._state, workload_class) is workload_class.last_reason:
            return 0
        refusal = self._class_refusal(workload_class)
        if refusal is None or refusal.reason is workload_class.last_reason:
            return 0
        first, published = self._head(workload_class), 0
        for workload in workload_class:
            if workload.uid != first and self._publish(workload, refusal):
                published += 1
                if published == most:
                    return published
        workload_class.last_reason = refusal.reason
        return published

    def _recompute_head(self, queue: QueueName) -> None:
        """Publish the reasons of a fifo queue's head and of its previous head."""
        head, before = self._state.blocking_head(queue), self._heads.pop(queue, None)
        if before is not None and before in self._state.pending and (head is None or head.uid != before):
            self._publish(self._state.workloads[before], self._state.refusal(before))
        if head is not None:
            self._heads[queue] = head.uid
            self._publish(head, self._state.refusal(head.uid))

    def _head(self, workload_class: WorkloadClass) -> WorkloadUid | None:
        return self._heads.get(workload_class.queue) if self._is_behind_head(workload_class) else None

    def _is_behind_head(self, workload_class: WorkloadClass) -> bool:
        """Return whether the workloads of a class wait behind the head of their fifo queue."""
        known = self._state.queues.get(workload_class.queue)
        return known is not None and known.fifo and workload_class.inadmissible is None and workload_class.is_waiting

    def _class_refusal(self, workload_class: WorkloadClass) -> Refusal | None:
        """Return why the workloads of a class are pending, except the head of a fifo queue."""
        head = self._state.blocking_head(workload_class.queue) if self._is_behind_head(workload_class) else None
        if head is None:
            return cycle.refusal(self._state, workload_class)
        return Refusal(Reason.BLOCKED_BY_QUEUE_HEAD, queue=workload_class.queue, subject=head.path)

    def _publish(self, workload: Workload, refusal: Refusal | None) -> bool:
        if refusal is None or self._state.last_reasons.get(workload.uid) is refusal.reason:
            return False
        self._state.last_reasons[workload.uid] = refusal.reason
        self._changed.setdefault(workload.queue, {})[workload.uid] = workload, refusal
        return True

    def _with_positions(self, queue: QueueName, changed: Mapping[WorkloadUid, tuple[Workload, Refusal]]) -> list[Wait]:
        classes = self._state.pending.queues.get(queue, ())
        if 2 * len(changed) * len(classes) >= sum(len(workload_class.workloads) for workload_class in classes):
            # Cheaper than computing each position separately.
            everyone = enumerate(self._state.pending_workloads(queue), start=1)
            return [
                Wait(*changed[workload.uid], position) for position, workload in everyone if workload.uid in changed
            ]
        waits = [Wait(workload, refusal, self._state.position(workload)) for workload, refusal in changed.values()]
        return sorted(waits, key=lambda wait: wait.position)
