"""Exchanges for the parts of a group that start together: where all of them go, and who leaves for that (P3, P5, G1).

It is judged for their sum; whether the victims suffice is ``exchange``. Nothing
is booked here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from controller.engine import gangs
from controller.engine.cluster_usage import ClusterState
from controller.engine.clusters import ClusterName
from controller.engine.fit import free_after_evictions
from controller.engine.ordering import Head
from controller.engine.preemption_search import PreemptionAttempt, PreemptionPlan, PreemptionPolicy, select_victims
from controller.engine.resources import EMPTY, Resources, add, elementwise_max, fits, subtract, total
from controller.engine.victims import Victim
from controller.engine.workloads import SchedulingRequirements, Workload

if TYPE_CHECKING:
    from controller.engine.state import State


def parts_to_admit(state: "State", head: Head) -> list[Workload]:
    """Return those who must start together with *head*, as few as may; the head alone where no others must.

    Nobody where others leave for some of them already, or where too few wait in one queue.
    """
    group = head.lane.group
    if group is None or not gangs.is_all_or_nothing(state, head.lane):
        return [head.workload]
    waiting = gangs.pending_parts(state, group)
    lanes = [state.backlog.lane(part.uid) for part in waiting]
    if any(lane.held is not None for lane in lanes):
        return []
    free = [
        part
        for part, lane in zip(waiting, lanes, strict=True)
        if lane.is_waiting and lane.hopeless is None and lane.queue == head.lane.queue
    ]
    missing = state.gangs.missing(group)
    return free[:missing] if len(free) >= missing else []


def find_plan(
    state: "State", head: Head, together: Sequence[Workload], *, candidates: Sequence[Victim], policy: PreemptionPolicy
) -> PreemptionPlan | None:
    """Return an exchange that lets all in who start *together*, ``None`` where there is none.

    *candidates* come in the order of their ranks.
    """
    floors = assign_clusters(state, together, candidates)
    if floors is None or state.standing is None:
        return None
    lanes = [state.backlog.lane(part.uid) for part in together]
    places = {part.uid: name for name, floor in floors.items() for part in floor.parts}
    attempt = PreemptionAttempt(
        state.standing, head, lanes, {name: (floor.cluster_state, floor.requested) for name, floor in floors.items()}
    )
    if not select_victims(attempt, candidates, policy):
        return None
    return PreemptionPlan(attempt, {part.uid: places[part.uid] for part in together}, None)


class ClusterAfterEvictions:
    """One cluster, as it will be once those are gone who come first among its possible victims."""

    def __init__(self, site: ClusterState, victims: Sequence[tuple[int, Resources]]) -> None:
        self.cluster_state = site
        self.parts: list[Workload] = []
        """Who goes there."""
        self.requested: Resources = EMPTY
        """What must be free there for that, beside what is now."""
        self._free = site.settled
        self._victims = victims
        self._evicted = 0
        self._assigned: Resources = EMPTY

    def rank(self, shape: SchedulingRequirements) -> tuple[int, int, int, ClusterName] | None:
        """Return P3's order of clusters for one more: the worst victim, how many go, C3's; ``None`` for no room."""
        found = self._evictions_needed(shape)
        if found is None:
            return None
        gone = found[0]
        freed = total(charge for _, charge in self._victims[:gone])
        if not free_after_evictions(self.cluster_state, freed).has_nodes_for(shape.pods):
            return None
        worst = self._victims[gone - 1][0] if gone > self._evicted else -1
        preference = (
            shape.preferred.index(self.cluster_state.name)
            if self.cluster_state.name in shape.preferred
            else len(shape.preferred)
        )
        return worst, gone - self._evicted, preference, self.cluster_state.name

    def assign(self, part: Workload, shape: SchedulingRequirements) -> None:
        """Let *part* go there."""
        found = self._evictions_needed(shape)
        if found is None:
            raise AssertionError(f"{self.cluster_state.name} has no room for {part.path}")
        self._evicted, left = found
        self.parts.append(part)
        self.requested = elementwise_max(self.requested, add(self._assigned, self._required(shape)))
        self._assigned = add(self._assigned, shape.demand)
        self._free = subtract(left, shape.demand)

    def _required(self, shape: SchedulingRequirements) -> Resources:
        return shape.demand if self.cluster_state.held else shape.gang

    def _evictions_needed(self, shape: SchedulingRequirements) -> tuple[int, Resources] | None:
        """Return how many must be gone, and what is left then, before *shape* is let in."""
        gone, left, asked = self._evicted, self._free, self._required(shape)
        while not fits(asked, left):
            if gone == len(self._victims):
                return None
            left = add(left, self._victims[gone][1])
            gone += 1
        return gone, left


def assign_clusters(
    state: "State", together: Sequence[Workload], candidates: Iterable[Victim]
) -> Mapping[ClusterName, ClusterAfterEvictions] | None:
    """Return where all who start *together* would go if any of *candidates* went; ``None`` where they would not fit."""
    victims: dict[ClusterName, list[tuple[int, Resources]]] = {}
    for number, victim in enumerate(candidates):
        for booking in victim.bookings:
            victims.setdefault(booking.cluster, []).append((number, booking.charge))
    floors: dict[ClusterName, ClusterAfterEvictions] = {}
    for part in together:
        shape = state.backlog.lane(part.uid).shape
        for name in state.books.feasibility_cache.get(shape).candidates.names:
            if name not in floors:
                floors[name] = ClusterAfterEvictions(state.ledger.site(name), victims.get(name, ()))
        orders = (floors[name].rank(shape) for name in state.books.feasibility_cache.get(shape).candidates.names)
        best = min((order for order in orders if order is not None), default=None)
        if best is None:
            return None
        floors[best[-1]].assign(part, shape)
    return {name: floor for name, floor in floors.items() if floor.parts}
