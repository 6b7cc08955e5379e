"""Tracks pending workloads whose reason changed since it was last published.

New workloads are published at once. Changed reasons affect no decision and may
be many, so a few are published at a time, and no decision has to wait.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from controller.engine import cycle
from controller.engine.pending import WorkloadClass
from controller.engine.plan import Wait
from controller.engine.queues import QueueName
from controller.engine.reasons import Reason, Refusal
from controller.engine.steps import Steps
from controller.engine.workloads import Workload, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.state import State

#: At a time so many lanes are asked, and so many of their workloads told.
_LANES: Final = 12
_WORKLOADS: Final = 60
#: After so long the next ones are, in milliseconds.
PAUSE_MS: Final = 20


class PendingReasonUpdater:
    """Recomputes reasons of pending workloads and returns those that changed."""

    def __init__(self, state: "State") -> None:
        self._world = state
        self._stale: dict[int, dict[WorkloadClass, None]] = {}
        """Classes to recompute, by the requirements' id: results for requirements are shared by their classes."""
        self._heads: dict[QueueName, WorkloadUid] = {}
        """The head of each fifo queue when it was last computed; its reason differs from the others'."""
        self._changed: dict[QueueName, dict[WorkloadUid, tuple[Workload, Refusal]]] = {}

    @property
    def is_behind(self) -> bool:
        """Return whether some classes still have to be recomputed."""
        return bool(self._stale)

    def mark_stale(self, lanes: Iterable[WorkloadClass]) -> None:
        """Recompute the reasons of *lanes* later."""
        for lane in lanes:
            self._stale.setdefault(id(lane.requirements), {})[lane] = None

    def flush(self) -> Steps[tuple[Wait, ...]]:
        """Return the changed reasons to publish now, by queue and position."""
        self._changed = {}
        for lane, uids in self._world.pending.unpublished.items():
            self._publish_new(lane, uids)
            yield 1 + len(uids)
        self._world.pending.unpublished.clear()
        for uid in self._world.unpublished:
            self._publish(self._world.workloads[uid], self._world.refusal(uid))
            yield 1
        self._world.unpublished.clear()
        self._recompute_stale()
        changed, self._changed = self._changed, {}
        return tuple(wait for name in sorted(changed) for wait in self._with_positions(name, changed[name]))

    def _publish_new(self, lane: WorkloadClass, uids: Collection[WorkloadUid]) -> None:
        """Publish the reason of new workloads of a class; mark the class stale if the others' reason differs."""
        if self._is_behind_head(lane):
            self._recompute_head(lane.queue)
        why, first = self._class_refusal(lane), self._head(lane)
        for uid in uids:
            if uid != first:
                self._publish(self._world.workloads[uid], why)
        if len(uids) == len(lane.workloads):
            lane.last_reason = why.reason if why else None
        elif why is None or why.reason is not lane.last_reason:
            self.mark_stale([lane])

    def _recompute_stale(self) -> None:
        """Recompute some of the stale classes."""
        left = _WORKLOADS
        for lane in list(islice(chain.from_iterable(self._stale.values()), _LANES)):
            left -= self._recompute(lane, left) if lane.workloads else 0
            if left <= 0:
                return
            lanes = self._stale[id(lane.requirements)]
            del lanes[lane]
            if not lanes:
                del self._stale[id(lane.requirements)]

    def _recompute(self, lane: WorkloadClass, most: int) -> int:
        """Publish up to *most* changed reasons of a class; return how many were published."""
        if self._is_behind_head(lane):
            self._recompute_head(lane.queue)
        elif cycle.reason(self._world, lane) is lane.last_reason:
            return 0
        why = self._class_refusal(lane)
        if why is None or why.reason is lane.last_reason:
            return 0
        first, told = self._head(lane), 0
        for workload in lane:
            if workload.uid != first and self._publish(workload, why):
                told += 1
                if told == most:
                    return told
        lane.last_reason = why.reason
        return told

    def _recompute_head(self, queue: QueueName) -> None:
        """Publish the reasons of a fifo queue's head and of its previous head."""
        head, before = self._world.blocking_head(queue), self._heads.pop(queue, None)
        if before is not None and before in self._world.pending and (head is None or head.uid != before):
            self._publish(self._world.workloads[before], self._world.refusal(before))
        if head is not None:
            self._heads[queue] = head.uid
            self._publish(head, self._world.refusal(head.uid))

    def _head(self, lane: WorkloadClass) -> WorkloadUid | None:
        return self._heads.get(lane.queue) if self._is_behind_head(lane) else None

    def _is_behind_head(self, lane: WorkloadClass) -> bool:
        """Return whether the workloads of a class wait behind the head of their fifo queue."""
        known = self._world.queues.get(lane.queue)
        return known is not None and known.fifo and lane.inadmissible is None and lane.is_waiting

    def _class_refusal(self, lane: WorkloadClass) -> Refusal | None:
        """Return why the workloads of a class are pending, except the head of a fifo queue."""
        head = self._world.blocking_head(lane.queue) if self._is_behind_head(lane) else None
        if head is None:
            return cycle.refusal(self._world, lane)
        return Refusal(Reason.BLOCKED_BY_QUEUE_HEAD, queue=lane.queue, subject=head.path)

    def _publish(self, workload: Workload, why: Refusal | None) -> bool:
        if why is None or self._world.last_reasons.get(workload.uid) is why.reason:
            return False
        self._world.last_reasons[workload.uid] = why.reason
        self._changed.setdefault(workload.queue, {})[workload.uid] = workload, why
        return True

    def _with_positions(self, queue: QueueName, changed: Mapping[WorkloadUid, tuple[Workload, Refusal]]) -> list[Wait]:
        lanes = self._world.pending.queues.get(queue, ())
        if 2 * len(changed) * len(lanes) >= sum(len(lane.workloads) for lane in lanes):
            # All at once, which costs less than one by one.
            everyone = enumerate(self._world.pending_workloads(queue), start=1)
            return [Wait(*changed[each.uid], position) for position, each in everyone if each.uid in changed]
        waits = [Wait(workload, why, self._world.position(workload)) for workload, why in changed.values()]
        return sorted(waits, key=lambda wait: wait.position)
