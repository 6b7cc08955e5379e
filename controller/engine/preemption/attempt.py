"""One choice of victims and clusters for a blocked workload: what it would release, and what is still missing (P3, P5).

Evictions in progress are assumed to have finished. An attempt changes no usage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from controller.engine.fairness.borrowing import BorrowingPolicy
from controller.engine.fairness.shares import QueueShares
from controller.engine.fairness.tournament import Head
from controller.engine.placement.fit import FreeCapacity, free_after_evictions
from controller.engine.preemption.candidates import Rank as VictimRank
from controller.engine.preemption.candidates import Victim, without_parts
from controller.engine.state.cluster_state import ClusterState
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import Node, QueueName
from controller.engine.state.pending import WorkloadClass
from controller.engine.state.quota import Quota
from controller.engine.state.resources import EMPTY, Resources, add, scale, total
from controller.engine.state.workloads import SchedulingRequirements

SelectionRank = tuple[int, VictimRank]
"""Tier and rank of a selected victim: tier 0 exceeds its charge, 1 leaves its branch its fair share, 2 does not."""

ClusterTarget = tuple[ClusterState, Resources, Sequence[SchedulingRequirements]]
"""A cluster, the capacity that must be free there at once, and what is to start on it."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is still missing, by resource: the queues whose limits are exceeded, and the clusters without capacity."""

    quota: Mapping[str, frozenset[QueueName]]
    clusters: Mapping[str, frozenset[ClusterName]]

    def __bool__(self) -> bool:
        return bool(self.quota or self.clusters)

    @property
    def resources(self) -> frozenset[str]:
        """Return all missing resources."""
        return frozenset({*self.clusters, *self.quota})


class SetAside(NamedTuple):
    """What head reservations set aside from a preemptor (O6)."""

    by_cluster: Mapping[ClusterName, Resources]
    by_queue: Mapping[QueueName, Resources]

    def required_quota(self, leaf: Node, charge: Resources, quota: Quota) -> list[tuple[Node, str, int]]:
        """Return how much must be free on the path of *leaf*: *charge*, beside what is free now and set aside."""
        return [
            (node, name, charge[name] + min(due, max(_free_quota(quota, node, name), 0)))
            for node in leaf.path()
            for name, due in self.by_queue.get(node.name, EMPTY).items()
            if due > 0 and charge.get(name, 0) > 0 and node.limits_resource(name)
        ]

    def leaves_quota(self, leaf: Node, charge: Resources, quota: Quota) -> bool:
        """Return whether *charge* fits the queues on the path of *leaf* beside what is set aside."""
        required = self.required_quota(leaf, charge, quota)
        return all(amount <= _free_quota(quota, node, name) for node, name, amount in required)


def _free_quota(quota: Quota, node: Node, resource: str) -> int:
    return quota.limits[node.name].limit.get(resource, 0) - quota.usage(node.name, resource)


@dataclass(frozen=True, slots=True)
class RankedVictims:
    """Victims that may be evicted for a preemptor, in eviction order."""

    everywhere: Sequence[Victim]
    on_clusters: Sequence[Victim]
    """Those on the clusters of one attempt."""

    def that_may_help(self, shortage: Shortage) -> Sequence[Victim]:
        """Return the victims that may reduce *shortage*: only those on its clusters while these lack capacity."""
        return self.on_clusters if shortage.clusters else self.everywhere


_Name = TypeVar("_Name", bound=str)


def _freeze(mapping: Mapping[str, set[_Name]]) -> dict[str, frozenset[_Name]]:
    return {resource: frozenset(names) for resource, names in mapping.items()}


class PreemptionAttempt:
    """One attempt to admit a head on a cluster, or gang parts on several, by selecting and unselecting victims.

    *quota* does not include the charge of the head.
    """

    def __init__(
        self,
        queue_shares: QueueShares,
        head: Head,
        workload_classes: Sequence[WorkloadClass],
        targets: Mapping[ClusterName, ClusterTarget],
        set_aside: SetAside,
    ) -> None:
        self.queue_shares = queue_shares
        self.head = head
        self.workload_classes = workload_classes
        """Workload class of the head, or of each part that starts with it."""
        self.charge = total(workload_class.charge for workload_class in workload_classes)
        self.quota = queue_shares.quota.overlay()
        self.selected: dict[Victim, SelectionRank] = {}
        self.evaluated: dict[object, tuple[bool, int]] = {}
        """For each kind of victims, whether the policy allows one next, and its tier; until the selection changes."""
        self._targets = targets
        self._set_aside = set_aside
        self._required_quota = set_aside.required_quota(head.leaf, self.charge, self.quota)
        self._requested = {name: amounts for name, (_, amounts, _) in targets.items()}
        self._free = {name: cluster_state.headroom_after_evictions for name, (cluster_state, *_) in targets.items()}
        self.initial_shortage = self.shortage()
        """What is missing before any victim is selected."""

    def without_victims(self) -> "PreemptionAttempt":
        """Return the same attempt without any selected victim."""
        return PreemptionAttempt(self.queue_shares, self.head, self.workload_classes, self._targets, self._set_aside)

    def free_capacity(self, cluster_state: ClusterState) -> FreeCapacity:
        """Return the free capacity of a cluster after the selected evictions."""
        return free_after_evictions(cluster_state, self._evicted_from(cluster_state), with_estimates=True)

    def accepts_pods(self) -> bool:
        """Return whether the nodes of the clusters may hold all pods after the selected evictions (C3)."""
        return all(
            self.free_capacity(cluster_state).accepts_pods(requirements)
            for cluster_state, _, starting in self._targets.values()
            for requirements in starting
        )

    def changes_nodes_of(self, cluster_state: ClusterState) -> bool:
        """Return whether pods leave the nodes of a cluster before the preemptor can start there."""
        return bool(cluster_state.being_evicted) or any(self._evicted_from(cluster_state).values())

    def _evicted_from(self, cluster_state: ClusterState) -> Resources:
        return total(victim.charge_on(cluster_state.name) for victim in self.selected)

    def shortage(self) -> Shortage:
        """Return what is missing after the selected evictions."""
        queues_by_resource: dict[str, set[QueueName]] = {}
        for fault in self.quota.violations(self.head.leaf, self.charge):
            if fault.resource is not None and fault.queue is not None:
                queues_by_resource.setdefault(fault.resource, set()).add(QueueName(fault.queue))
        for node, name, required in self._required_quota:
            if required > _free_quota(self.quota, node, name):
                queues_by_resource.setdefault(name, set()).add(node.name)
        clusters_by_resource: dict[str, set[ClusterName]] = {}
        for cluster, requested in self._requested.items():
            for name, amount in requested.items():
                if amount > 0 and amount > self._free[cluster].get(name, 0):
                    clusters_by_resource.setdefault(name, set()).add(cluster)
        return Shortage(_freeze(queues_by_resource), _freeze(clusters_by_resource))

    def helps(self, victim: Victim, shortage: Shortage) -> bool:
        """Return whether evicting *victim* reduces the shortage: on the clusters first, then in the queues."""
        if shortage.clusters:
            charges = [
                cluster_charge for cluster_charge in victim.cluster_charges if cluster_charge.cluster in self._free
            ]
            return bool(charges) and any(
                cluster_charge.charge.get(name, 0) > 0 and cluster_charge.cluster in clusters
                for cluster_charge in charges
                for name, clusters in shortage.clusters.items()
            )
        return any(
            victim.charge.get(name, 0) > 0 and any(node.name in queues for node in victim.node.path())
            for name, queues in shortage.quota.items()
        )

    def may_select(self, victim: Victim) -> bool:
        """Return whether *victim* is unselected, and its gang has a part to spare if it is a single one."""
        if victim in self.selected or self._selected_together(victim):
            return False
        if victim.spare is None:
            return True
        gang = victim.workloads[0].gang
        singles = sum(other.spare is not None and other.workloads[0].gang == gang for other in self.selected)
        return singles < victim.spare

    def must_stay_selected(self, victim: Victim) -> bool:
        """Return whether several other parts of its gang are selected together: too many to run without these only."""
        return victim.spare is not None and any(len(other.parts) > 1 for other in self._selected_together(victim))

    def _selected_together(self, victim: Victim) -> list[Victim]:
        """Return the parts that are selected together of the gang of *victim* in its queue."""
        gang = victim.workloads[0].gang
        if gang is None:
            return []
        together = [other for other in self.selected if other.parts and other.node is victim.node]
        return [other for other in together if other.workloads[0].gang == gang]

    def unselected(self, victim: Victim) -> Victim:
        """Return *victim* without those of its parts that are selected."""
        return without_parts(victim, self.selected)

    def select(self, victim: Victim, selection: SelectionRank) -> None:
        """Select *victim* for eviction."""
        self.selected[victim] = selection
        self._release(victim, 1)

    def unselect(self, victim: Victim) -> SelectionRank:
        """Unselect *victim*; return how it was selected."""
        self._release(victim, -1)
        return self.selected.pop(victim)

    def unselect_all(self) -> dict[Victim, SelectionRank]:
        """Unselect all victims; return them in the order of their selection."""
        selected = dict(self.selected)
        for victim in selected:
            self.unselect(victim)
        return selected

    def _release(self, victim: Victim, times: int) -> None:
        self.evaluated.clear()
        self.quota.add_usage(victim.node, scale(victim.charge, -times))
        for cluster_charge in victim.cluster_charges:
            if cluster_charge.cluster in self._free:
                self._free[cluster_charge.cluster] = add(
                    self._free[cluster_charge.cluster], scale(cluster_charge.charge, times)
                )

    def may_borrow(self, borrowing: BorrowingPolicy | None) -> bool:
        """Return whether the queue may borrow what the head, or the parts in turn, need beyond the victims' charges."""
        if borrowing is None:
            return True
        quota = self.quota.overlay()
        for workload_class in self.workload_classes:
            if borrowing.refusal(self.head.leaf, workload_class, quota) is not None:
                return False
            quota.add_assumed(quota.tree.nodes[self.head.leaf.name], workload_class.charge)
        return True
