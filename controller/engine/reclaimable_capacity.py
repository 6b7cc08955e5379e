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

    requirements: SchedulingRequirements
    fits: bool
    fitting_cluster: ClusterName | None
    """A cluster that would take it."""
    generation: int
    """How often clusters had been freed by then."""


class ReclaimableCapacity:
    """Where waiting shapes could go; it must be told of queues in which somebody came or went."""

    def __init__(self, state: "State", standing: QueueShares, roster: PreemptionCandidates, now: int) -> None:
        self._world = state
        self._now = now
        self._ledger = state.ledger
        self._standing = standing
        self._candidates = roster
        self._reclaimable: dict[QueueName, dict[ClusterName, Resources]] = {}
        """What could be moved out of each queue that has borrowed."""
        self._reclaimable_by_cluster: dict[ClusterName, Resources] = {}
        """The same by cluster."""
        self._findings: dict[int, _Finding] = {}
        self._gained: set[ClusterName] = set()
        self._version = self._ledger.version
        for node in roster.queues():
            self.update(node)

    def update(self, node: Node) -> None:
        """Ask anew what could be moved out of a queue."""
        for name, amounts in self._reclaimable.pop(node.name, {}).items():
            self._reclaimable_by_cluster[name] = subtract(self._reclaimable_by_cluster[name], amounts)
        if self._has_borrowed(node):
            self._reclaimable[node.name] = self._candidates.reclaimable(node.name, self._now)
            for name, amounts in self._reclaimable[node.name].items():
                self._reclaimable_by_cluster[name] = add(self._reclaimable_by_cluster.get(name, EMPTY), amounts)
                self._gained.add(name)

    def _has_borrowed(self, node: Node) -> bool:
        """Say whether a queue is above its entitlement and reclaim does not leave it alone."""
        due = self._standing.entitlements[node.name]
        held = self._standing.quota.allocated[node.name]
        is_above = any(amount > due.get(name, 0) for name, amount in held.items() if name != PODS)
        return is_above and all(above.queue.reclaimable for above in node.path() if above.parent is not None)

    def fits(self, shape: SchedulingRequirements) -> bool:
        """Say whether some candidate cluster would take *shape* once all that can be moved is gone."""
        if id(shape) not in self._findings:
            self._findings[id(shape)] = self._evaluate(shape, None)
        return self._findings[id(shape)].fits

    def has_changed(self) -> bool:
        """Say whether that is otherwise for some shape since this was last asked."""
        if self._version == self._ledger.version:
            return False
        before, self._version = self._findings, self._ledger.version
        self._findings = {key: self._evaluate(look.requirements, look) for key, look in before.items()}
        self._gained.clear()
        return any(look.fits != before[key].fits for key, look in self._findings.items())

    def _evaluate(self, shape: SchedulingRequirements, before: _Finding | None) -> _Finding:
        prospect = self._world.books.feasibility_cache.get(shape)
        if not prospect.needs_one_cluster:
            rooms = [self._free_capacity(name) for name in prospect.candidates.names]
            takes = isinstance(choose_clusters(shape, rooms, prospect.candidates.copies), Choice)
            return _Finding(shape, takes, None, self._ledger.frees)
        witness = self._find_cluster(prospect, before)
        return _Finding(shape, witness is not None, witness, self._ledger.frees)

    def _find_cluster(self, prospect: ClassFeasibility, before: _Finding | None) -> ClusterName | None:
        names = prospect.candidates.names
        if (
            before is not None
            and before.fitting_cluster is not None
            and self._free_capacity(before.fitting_cluster).fits(prospect.requirements)
        ):
            return before.fitting_cluster
        if before is not None and before.fitting_cluster is None:
            freed = self._ledger.freed_since(before.generation)
            if freed is not None:
                names = tuple(name for name in names if name in freed or name in self._gained)
        return next((name for name in names if self._free_capacity(name).fits(prospect.requirements)), None)

    def _free_capacity(self, name: ClusterName) -> FreeCapacity:
        site, gone = self._ledger.site(name), self._reclaimable_by_cluster.get(name, EMPTY)
        room = free_after_evictions(site, gone)
        # Where nobody goes, nodes stay as they have been counted.
        return room if site.leaving or any(gone.values()) else replace(room, estimates=site.estimates)
