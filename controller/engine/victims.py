"""Who could be evicted for others, queue by queue, in the order in which they would be taken (P3, P4).

Whether one of them may be taken for a certain other workload is ``reclaim``
and ``preemption``.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controller.engine.clusters import ClusterName
from controller.engine.queues import QueueName
from controller.engine.resources import EMPTY, Resources, add, total
from controller.engine.tree import Node, Tree
from controller.engine.workloads import Admission, ClusterCharge, HyperJobGang, Workload, WorkloadState

if TYPE_CHECKING:
    from controller.engine.state import State

Rank = tuple[bool, int, int, int, str, str, str]
"""Not over its charge; queue priority; job priority; the newest first; name, namespace, uid."""


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """Who could be evicted at once, with all that decides whether that happens.

    One admitted workload; or the parts of a group that cannot go on without
    one another (G1).
    """

    workloads: tuple[Workload, ...]
    node: Node
    """Where they are charged."""
    rank: Rank
    charge: Resources
    """What their queue is charged for them."""
    preceded_by: "Victim | None" = None
    """Who of the same group goes before: while its minimum is met, its parts go one by one."""

    @property
    def queue(self) -> QueueName:
        """Return the queue that they are charged to."""
        return self.workloads[0].queue

    @property
    def priority(self) -> int:
        """Return the highest job priority among them."""
        return max(workload.priority for workload in self.workloads)

    @property
    def evictions(self) -> int:
        """Return how often at most one of them was evicted."""
        return max(workload.evictions for workload in self.workloads)

    @property
    def stays_until(self) -> int:
        """Return until when one of them is not tried again."""
        return max(workload.stays_until for workload in self.workloads)

    @property
    def exceeds_charge(self) -> bool:
        """Say whether one of them asks for more than it was charged with (D7)."""
        return any(workload.has_grown for workload in self.workloads)

    @property
    def admitted_at(self) -> int:
        """Return when the last of them was admitted."""
        return max(admission.admitted_at for admission in self.admissions)

    @property
    def admissions(self) -> list[Admission]:
        """Return what they were admitted with."""
        return [workload.admission for workload in self.workloads if workload.admission is not None]

    @property
    def bookings(self) -> list[ClusterCharge]:
        """Return what they hold, cluster by cluster."""
        return [booking for admission in self.admissions for booking in admission.bookings]

    def charge_on(self, name: ClusterName) -> Resources:
        """Return what they hold on a cluster."""
        held = EMPTY
        for booking in self.bookings:
            held = add(held, booking.charge) if booking.cluster == name else held
        return held


class PreemptionCandidates:
    """The possible victims of every queue as they are; it must be told of queues in which somebody came or went."""

    def __init__(self, state: "State", tree: Tree) -> None:
        self._world = state
        self._tree = tree
        self._by_queue: dict[QueueName, list[Victim]] = {}

    def queues(self) -> list[Node]:
        """Return the queues in which somebody is admitted, by name."""
        return [self._tree.nodes[name] for name in sorted(self._world.admitted) if name in self._tree.nodes]

    def in_queue(self, queue: QueueName) -> list[Victim]:
        """Return the possible victims in one queue, the first to go first."""
        if queue not in self._by_queue:
            node = self._tree.nodes[queue]
            admitted = self._world.admitted.get(queue, {}).values()
            found = [_new_victim((each,), node) for each in admitted if each.group is None and self._is_evictable(each)]
            for group in {each.group for each in admitted if each.group is not None}:
                found += self._gang_victims(group, node)
            self._by_queue[queue] = sorted(found, key=lambda victim: victim.rank)
        return self._by_queue[queue]

    def invalidate(self, queue: QueueName) -> None:
        """Ask anew who is admitted in *queue*."""
        self._by_queue.pop(queue, None)

    def reclaimable(self, queue: QueueName, now: int) -> dict[ClusterName, Resources]:
        """Return by cluster what would be freed if all left that reclaim may evict before a reservation begins (O3)."""
        rules, until = self._world.policy.reclaim, now + self._world.policy.reservation.after_ms
        freed: dict[ClusterName, Resources] = {}
        for victim in self.in_queue(queue):
            ripens_at = rules.ripens_at(victim.evictions, victim.admitted_at)
            if ripens_at is not None and max(ripens_at, victim.stays_until) <= until:
                for booking in victim.bookings:
                    freed[booking.cluster] = add(freed.get(booking.cluster, EMPTY), booking.charge)
        return freed

    def _gang_victims(self, group: HyperJobGang, node: Node) -> list[Victim]:
        """Return the victims that a group offers: single parts while its minimum is met, then all others at once.

        A group in several queues is left alone: what one queue may lose is not the others' to give.
        """
        parts = [self._world.workloads[uid] for uid in self._world.gangs.parts(group)]
        admitted = [part for part in parts if part.state is WorkloadState.ADMITTED]
        if any(part.queue != node.name or not self._is_evictable(part) for part in admitted):
            return []
        singles = sorted((_new_victim((part,), node) for part in admitted), key=lambda victim: victim.rank)
        spare = max(sum(part.state is not WorkloadState.PENDING for part in parts) - group.minimum, 0)
        found: list[Victim] = []
        for single in singles[:spare]:
            found.append(replace(single, preceded_by=found[-1] if found else None))
        rest = tuple(victim.workloads[0] for victim in singles[spare:])
        return [*found, _new_victim(rest, node, after=found[-1] if found else None)] if rest else found

    def _is_evictable(self, workload: Workload) -> bool:
        """Say whether evicting it would free anything for certain, and is ours to do."""
        if workload.preserved or workload.admission is None or workload.admission.adopted:
            return False
        sites = (self._world.ledger.site(booking.cluster) for booking in workload.admission.bookings)
        return all(site.is_usable for site in sites)


def _new_victim(workloads: tuple[Workload, ...], node: Node, *, after: Victim | None = None) -> Victim:
    ranks = [_rank(workload, node) for workload in workloads]
    charge = total(workload.admission.charge for workload in workloads if workload.admission is not None)
    return Victim(workloads, node, max(ranks), charge, after)


def _rank(workload: Workload, node: Node) -> Rank:
    admission = workload.admission
    if admission is None:
        raise AssertionError(f"{workload.path} is admitted without an admission")
    return (
        not workload.has_grown,
        node.queue.priority,
        workload.priority,
        -admission.admitted_at,
        workload.name,
        workload.namespace,
        workload.uid,
    )
