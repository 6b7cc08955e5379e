"""What the clusters would take once those are gone who have borrowed and can be moved (O3).

Kept up to date while a cycle decides; a shape is searched for anew only on
clusters that have gained some room since.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controller.engine.clusters import ClusterName
from controller.engine.feasibility_cache import ClassFeasibility
from controller.engine.fit import FreeCapacity, choose_clusters, free_after_evictions
from controller.engine.ordering import QueueShares
from controller.engine.resources import EMPTY, PODS, Resources, add, subtract
from controller.engine.tree import Node
from controller.engine.victims import PreemptionCandidates
from controller.engine.workloads import Choice, SchedulingRequirements

if TYPE_CHECKING:
    from controller.engine.queues import QueueName
    from controller.engine.state import State


@dataclass(slots=True)
class _Finding:
    """What was found out about a shape."""

    shape: SchedulingRequirements
    takes: bool
    witness: ClusterName | None
    """A cluster that would take it."""
    frees: int
    """How often clusters had been freed by then."""


class ReclaimableCapacity:
    """Where waiting shapes could go; it must be told of queues in which somebody came or went."""

    def __init__(self, state: "State", standing: QueueShares, roster: PreemptionCandidates, now: int) -> None:
        self._world = state
        self._now = now
        self._ledger = state.ledger
        self._standing = standing
        self._roster = roster
        self._movable: dict[QueueName, dict[ClusterName, Resources]] = {}
        """What could be moved out of each queue that has borrowed."""
        self._sums: dict[ClusterName, Resources] = {}
        """The same by cluster."""
        self._looks: dict[int, _Finding] = {}
        self._gained: set[ClusterName] = set()
        self._version = self._ledger.version
        for node in roster.queues():
            self.forget(node)

    def forget(self, node: Node) -> None:
        """Ask anew what could be moved out of a queue."""
        for name, amounts in self._movable.pop(node.name, {}).items():
            self._sums[name] = subtract(self._sums[name], amounts)
        if self._has_borrowed(node):
            self._movable[node.name] = self._roster.movable(node.name, self._now)
            for name, amounts in self._movable[node.name].items():
                self._sums[name] = add(self._sums.get(name, EMPTY), amounts)
                self._gained.add(name)

    def _has_borrowed(self, node: Node) -> bool:
        """Say whether a queue is above its entitlement and reclaim does not leave it alone."""
        due = self._standing.entitlements[node.name]
        held = self._standing.quota.allocated[node.name]
        is_above = any(amount > due.get(name, 0) for name, amount in held.items() if name != PODS)
        return is_above and all(above.queue.reclaimable for above in node.path() if above.parent is not None)

    def takes(self, shape: SchedulingRequirements) -> bool:
        """Say whether some candidate cluster would take *shape* once all that can be moved is gone."""
        if id(shape) not in self._looks:
            self._looks[id(shape)] = self._look(shape, None)
        return self._looks[id(shape)].takes

    def has_changed(self) -> bool:
        """Say whether that is otherwise for some shape since this was last asked."""
        if self._version == self._ledger.version:
            return False
        before, self._version = self._looks, self._ledger.version
        self._looks = {key: self._look(look.shape, look) for key, look in before.items()}
        self._gained.clear()
        return any(look.takes != before[key].takes for key, look in self._looks.items())

    def _look(self, shape: SchedulingRequirements, before: _Finding | None) -> _Finding:
        prospect = self._world.books.prospects.of(shape)
        if not prospect.is_simple:
            rooms = [self._room(name) for name in prospect.outlook.names]
            takes = isinstance(choose_clusters(shape, rooms, prospect.outlook.copies), Choice)
            return _Finding(shape, takes, None, self._ledger.frees)
        witness = self._witness(prospect, before)
        return _Finding(shape, witness is not None, witness, self._ledger.frees)

    def _witness(self, prospect: ClassFeasibility, before: _Finding | None) -> ClusterName | None:
        names = prospect.outlook.names
        if before is not None and before.witness is not None and self._room(before.witness).takes(prospect.shape):
            return before.witness
        if before is not None and before.witness is None:
            freed = self._ledger.freed_since(before.frees)
            if freed is not None:
                names = tuple(name for name in names if name in freed or name in self._gained)
        return next((name for name in names if self._room(name).takes(prospect.shape)), None)

    def _room(self, name: ClusterName) -> FreeCapacity:
        site, gone = self._ledger.site(name), self._sums.get(name, EMPTY)
        room = free_after_evictions(site, gone)
        # Where nobody goes, nodes stay as they have been counted.
        return room if site.leaving or any(gone.values()) else replace(room, estimates=site.estimates)
