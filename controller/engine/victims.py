"""Who could be evicted for others, queue by queue, in the order in which they would be taken (P3, P4).

Whether one of them may be taken for a certain other workload is ``reclaim``
and ``preemption``.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.engine.clusters import ClusterName
from controller.engine.queues import QueueName
from controller.engine.resources import EMPTY, Resources, add
from controller.engine.tree import Node, Tree
from controller.engine.workloads import Admission, Workload

if TYPE_CHECKING:
    from controller.engine.world import World

Rank = tuple[bool, int, int, int, str, str, str]
"""Not over its charge; queue priority; job priority; the newest first; name, namespace, uid."""


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """An admitted workload that could be evicted, with all that decides whether it is."""

    workload: Workload
    admission: Admission
    node: Node
    """Where it is charged."""
    rank: Rank

    @property
    def charge(self) -> Resources:
        """Return what its queue is charged for it."""
        return self.admission.charge

    def on(self, name: ClusterName) -> Resources:
        """Return what it holds on a cluster."""
        return next((each.charge for each in self.admission.bookings if each.cluster == name), EMPTY)


class Roster:
    """The possible victims of every queue as they are; it must be told of queues in which somebody came or went."""

    def __init__(self, world: "World", tree: Tree) -> None:
        self._world = world
        self._tree = tree
        self._of: dict[QueueName, list[Victim]] = {}

    def queues(self) -> list[Node]:
        """Return the queues in which somebody is admitted, by name."""
        return [self._tree.nodes[name] for name in sorted(self._world.admitted) if name in self._tree.nodes]

    def of(self, queue: QueueName) -> list[Victim]:
        """Return the possible victims in one queue, the first to go first."""
        if queue not in self._of:
            node = self._tree.nodes[queue]
            found = [_victim(workload, node) for workload in self._world.admitted.get(queue, {}).values()]
            self._of[queue] = sorted(filter(self._is_movable, found), key=lambda victim: victim.rank)
        return self._of[queue]

    def forget(self, queue: QueueName) -> None:
        """Ask anew who is admitted in *queue*."""
        self._of.pop(queue, None)

    def movable(self, queue: QueueName) -> dict[ClusterName, Resources]:
        """Return by cluster what would be freed if all went whom reclaim can move, sooner or later."""
        rules = self._world.policy.reclaim
        freed: dict[ClusterName, Resources] = {}
        for victim in self.of(queue):
            if victim.workload.evictions < rules.max_evictions:
                for booking in victim.admission.bookings:
                    freed[booking.cluster] = add(freed.get(booking.cluster, EMPTY), booking.charge)
        return freed

    def _is_movable(self, victim: Victim) -> bool:
        """Say whether evicting it would free anything for certain, and is ours to do."""
        if victim.workload.preserved or victim.admission.adopted:
            return False
        sites = (self._world.ledger.site(booking.cluster) for booking in victim.admission.bookings)
        return all(site.is_usable for site in sites)


def _victim(workload: Workload, node: Node) -> Victim:
    admission = workload.admission
    if admission is None:
        raise AssertionError(f"{workload.path} is admitted without an admission")
    rank = (
        not admission.grown,
        node.queue.priority,
        workload.priority,
        -admission.admitted_at,
        workload.name,
        workload.namespace,
        workload.uid,
    )
    return Victim(workload, admission, node, rank)
