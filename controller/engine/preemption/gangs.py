"""Searches victims for HyperJob parts that start together, and assigns the parts to clusters (P3, P5, G1).

``preemption_search`` decides whether the victims suffice, for the sum of all parts. This module changes no
usage.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from controller.engine import gangs
from controller.engine.fairness.ordering import Head
from controller.engine.placement.fit import free_after_evictions
from controller.engine.preemption.candidates import Victim
from controller.engine.preemption.search import PreemptionAttempt, PreemptionPlan, PreemptionPolicy, select_victims
from controller.engine.state.cluster_usage import ClusterState
from controller.engine.state.clusters import ClusterName
from controller.engine.state.resources import EMPTY, Resources, add, elementwise_max, fits, subtract, total
from controller.engine.state.workloads import SchedulingRequirements, Workload

if TYPE_CHECKING:
    from controller.engine.engine import Engine


def parts_to_admit(state: "Engine", head: Head) -> list[Workload]:
    """Return the fewest workloads that must start together with *head*; the head alone outside a gang.

    Empty if some parts are nominated already, or too few are pending in one queue.
    """
    gang = head.workload_class.gang
    if gang is None or not gangs.is_all_or_nothing(state, head.workload_class):
        return [head.workload]
    pending = gangs.pending_parts(state, gang)
    workload_classes = [state.pending.class_of(part.uid) for part in pending]
    if any(workload_class.nominated_cluster is not None for workload_class in workload_classes):
        return []
    eligible = [
        part
        for part, workload_class in zip(pending, workload_classes, strict=True)
        if workload_class.is_waiting
        and workload_class.inadmissible is None
        and workload_class.queue == head.workload_class.queue
    ]
    missing = state.gangs.missing(gang)
    return eligible[:missing] if len(eligible) >= missing else []


def find_gang_plan(
    state: "Engine", head: Head, parts: Sequence[Workload], *, candidates: Sequence[Victim], policy: PreemptionPolicy
) -> PreemptionPlan | None:
    """Return a plan that admits all *parts*; ``None`` where there is none.

    *candidates* are sorted by rank.
    """
    clusters = assign_clusters(state, parts, candidates)
    if clusters is None or state.queue_shares is None:
        return None
    workload_classes = [state.pending.class_of(part.uid) for part in parts]
    cluster_of = {part.uid: name for name, cluster in clusters.items() for part in cluster.parts}
    attempt = PreemptionAttempt(
        state.queue_shares,
        head,
        workload_classes,
        {name: (cluster.cluster_state, cluster.requested) for name, cluster in clusters.items()},
    )
    if not select_victims(attempt, candidates, policy):
        return None
    return PreemptionPlan(attempt, {part.uid: cluster_of[part.uid] for part in parts}, None)


class ClusterAfterEvictions:
    """A cluster after the eviction of its first victim candidates."""

    def __init__(self, cluster_state: ClusterState, victims: Sequence[tuple[int, Resources]]) -> None:
        self.cluster_state = cluster_state
        self.parts: list[Workload] = []
        """Parts assigned to the cluster."""
        self.requested: Resources = EMPTY
        """What must be free for these parts, in addition to what is free now."""
        self._free = cluster_state.headroom_after_evictions
        self._victims = victims
        self._evicted = 0
        self._assigned: Resources = EMPTY

    def rank(self, requirements: SchedulingRequirements) -> tuple[int, int, int, ClusterName] | None:
        """Return P3's cluster order for a part: worst victim, victims, C3's order; ``None`` if it does not fit."""
        needed = self._evictions_needed(requirements)
        if needed is None:
            return None
        evicted = needed[0]
        freed = total(charge for _, charge in self._victims[:evicted])
        if not free_after_evictions(self.cluster_state, freed).has_nodes_for(requirements.pods):
            return None
        worst = self._victims[evicted - 1][0] if evicted > self._evicted else -1
        preference = (
            requirements.preferred_clusters.index(self.cluster_state.name)
            if self.cluster_state.name in requirements.preferred_clusters
            else len(requirements.preferred_clusters)
        )
        return worst, evicted - self._evicted, preference, self.cluster_state.name

    def assign(self, part: Workload, requirements: SchedulingRequirements) -> None:
        """Assign *part* to this cluster."""
        needed = self._evictions_needed(requirements)
        if needed is None:
            raise AssertionError(f"{self.cluster_state.name} cannot hold {part.path}")
        self._evicted, free = needed
        self.parts.append(part)
        self.requested = elementwise_max(self.requested, add(self._assigned, self._required(requirements)))
        self._assigned = add(self._assigned, requirements.requests)
        self._free = subtract(free, requirements.requests)

    def _required(self, requirements: SchedulingRequirements) -> Resources:
        return requirements.requests if self.cluster_state.nominated else requirements.gang_requests

    def _evictions_needed(self, requirements: SchedulingRequirements) -> tuple[int, Resources] | None:
        """Return how many candidates must be evicted for *requirements*, and what is free then."""
        evicted, free, required = self._evicted, self._free, self._required(requirements)
        while not fits(required, free):
            if evicted == len(self._victims):
                return None
            free = add(free, self._victims[evicted][1])
            evicted += 1
        return evicted, free


def assign_clusters(
    state: "Engine", parts: Sequence[Workload], candidates: Iterable[Victim]
) -> Mapping[ClusterName, ClusterAfterEvictions] | None:
    """Return the clusters of all *parts* after evicting *candidates*; ``None`` if they do not fit."""
    victims: dict[ClusterName, list[tuple[int, Resources]]] = {}
    for number, victim in enumerate(candidates):
        for cluster_charge in victim.bookings:
            victims.setdefault(cluster_charge.cluster, []).append((number, cluster_charge.charge))
    clusters: dict[ClusterName, ClusterAfterEvictions] = {}
    for part in parts:
        requirements = state.pending.class_of(part.uid).requirements
        for name in state.queue_usage.feasibility_cache.get(requirements).candidates.names:
            if name not in clusters:
                clusters[name] = ClusterAfterEvictions(state.cluster_usage.cluster_state(name), victims.get(name, ()))
        orders = (
            clusters[name].rank(requirements)
            for name in state.queue_usage.feasibility_cache.get(requirements).candidates.names
        )
        best = min((order for order in orders if order is not None), default=None)
        if best is None:
            return None
        clusters[best[-1]].assign(part, requirements)
    return {name: floor for name, floor in clusters.items() if floor.parts}
