"""Sums up what each head reservation sets aside, for all its workloads together (O6, O9)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_

from controller.engine.placement.feasibility_cache import FeasibilityCache, ReservedCapacity
from controller.engine.reservations.backfill import MISS_BUDGET, ReservationDemand, Window, longest_run_time
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import Node, QueueName
from controller.engine.state.pending import OrderKey, PendingWorkloads, order_key, owner_of
from controller.engine.state.quota import Quota
from controller.engine.state.resources import EMPTY, Resources, add, remaining
from controller.engine.state.workload_index import WorkloadIndex
from controller.engine.state.workloads import SchedulingRequirements, Workload, WorkloadUid


@dataclass(frozen=True, slots=True)
class JointReservation:
    """What is reserved for one pending workload, or for all parts of a HyperJob (G1)."""

    first: Workload
    """The workload that refusals name."""
    priority: int
    """Priority of that workload's queue."""
    since: int
    requirements: Mapping[WorkloadUid, SchedulingRequirements]
    """Requirements of all its workloads."""
    charges: Sequence[tuple[Node, Resources]]
    """Quota reserved in each leaf."""
    charges_by_queue: Mapping[QueueName, Resources]
    """The same for each queue on the paths of the leaves."""
    charges_by_cluster: Mapping[ClusterName, Resources]
    run_time_ms: int | None
    """For how long it is expected to run; ``None`` where unknown."""
    promised_start: int | None
    backfill_until: int | None = None
    """Workloads that end until then are not bound; the charges are those that the others must leave (O9)."""
    budget: int = 0
    """The part of `MISS_BUDGET` that is left for such workloads."""

    @property
    def demand(self) -> ReservationDemand:
        """Return what must be free before its workloads can start."""
        return ReservationDemand(
            owner_of(self.first),
            self.charges,
            self.charges_by_cluster,
            self.run_time_ms,
            self.promised_start,
            tuple(self.requirements),
        )

    def within(self, window: Window | None) -> "JointReservation":
        """Return the reservation without what is released in its *window*."""
        if window is None:
            return self
        by_queue = {
            name: remaining(due, window.by_queue.get(name, EMPTY)) for name, due in self.charges_by_queue.items()
        }
        by_cluster = {
            name: remaining(due, window.by_cluster.get(name, EMPTY)) for name, due in self.charges_by_cluster.items()
        }
        return replace(
            self,
            charges_by_queue=by_queue,
            charges_by_cluster=by_cluster,
            backfill_until=window.backfill_until,
            budget=MISS_BUDGET - window.spent,
        )


def _reservation(
    reserving: Iterable[Workload],
    quota: Quota,
    pending_workloads: PendingWorkloads,
    feasibility_cache: FeasibilityCache,
) -> JointReservation | None:
    nodes, feasibility_of = quota.tree.nodes, feasibility_cache.get
    pending = [workload for workload in reserving if workload.queue in nodes and workload.uid in pending_workloads]
    if not pending:
        return None
    first = min(pending, key=order_key)
    requirements = {workload.uid: pending_workloads.class_of(workload.uid).requirements for workload in pending}
    charges: dict[QueueName, Resources] = {}
    charges_by_queue: dict[QueueName, Resources] = {}
    charges_by_cluster: dict[ClusterName, Resources] = {}
    for workload in pending:
        charge = feasibility_of(requirements[workload.uid]).charge
        charges[workload.queue] = add(charges.get(workload.queue, EMPTY), charge)
        for node in nodes[workload.queue].path():
            charges_by_queue[node.name] = add(charges_by_queue.get(node.name, EMPTY), charge)
        for cluster_charge in workload.reservation.cluster_charges if workload.reservation is not None else ():
            charges_by_cluster[cluster_charge.cluster] = add(
                charges_by_cluster.get(cluster_charge.cluster, EMPTY), cluster_charge.charge
            )
    reserved = [workload.reservation for workload in pending if workload.reservation is not None]
    promised = [reservation.promised_start for reservation in reserved if reservation.promised_start is not None]
    leaves = [(nodes[name], charges[name]) for name in sorted(charges)]
    return JointReservation(
        first,
        nodes[first.queue].queue.priority,
        min(reservation.since for reservation in reserved),
        requirements,
        leaves,
        charges_by_queue,
        charges_by_cluster,
        longest_run_time(pending),
        min(promised, default=None),
    )


def reservation_demands(
    quota: Quota, workloads: WorkloadIndex, feasibility_cache: FeasibilityCache
) -> list[ReservationDemand]:
    """Return what each reservation needs, by precedence."""
    return [reservation.demand for reservation in _reservations(quota, workloads, feasibility_cache)]


def _reservations(
    quota: Quota, workloads: WorkloadIndex, feasibility_cache: FeasibilityCache
) -> list[JointReservation]:
    reservations = (
        _reservation(reserving, quota, workloads.pending, feasibility_cache)
        for reserving in _group_by_gang(workloads.with_reservation.values())
    )
    return sorted(filter(None, reservations), key=_precedence)


@dataclass(slots=True)
class ReservedQuota:
    """The most that one reservation sets aside of a resource in a queue on the path of a leaf."""

    node: Node
    resource: str
    by_any: int
    by_own: int | None = None
    """The most that one of the leaf's own reservations sets aside; ``None`` without any."""


class ReservedResources:
    """What the reservations set aside; valid until a reservation or a charge changes, whatever the usage is."""

    def __init__(self, reservations: list[JointReservation], inputs: list[object]) -> None:
        self._inputs = inputs
        """The objects that it was computed from."""
        self.reservations = reservations
        self.by_queue = {key: _reserved_capacity(reservations) for key, reservations in self._by_queue().items()}
        """Reserved cluster capacity by queue; of all queues under ``None``."""
        self._by_leaf: dict[QueueName, list[ReservedQuota]] = {}

    def _by_queue(self) -> dict[QueueName | None, list[JointReservation]]:
        by_queue: dict[QueueName | None, list[JointReservation]] = {None: self.reservations}
        for reservation in self.reservations:
            for node, _ in reservation.charges:
                by_queue.setdefault(node.name, []).append(reservation)
        return by_queue

    def keep_equal(self, known: "ReservedResources") -> None:
        """Use the capacities of *known* that are the same, so that what is cached for them stays valid."""
        for queue, capacity in self.by_queue.items():
            before = known.by_queue.get(queue)
            if before is not None and before.by_cluster == capacity.by_cluster:
                self.by_queue[queue] = before

    def is_from(self, inputs: Sequence[object]) -> bool:
        """Return whether it was computed from the same *inputs*."""
        return len(self._inputs) == len(inputs) and all(map(is_, self._inputs, inputs))

    def on_path(self, leaf: Node) -> list[ReservedQuota]:
        """Return what is reserved in *leaf* and its ancestors."""
        known = self._by_leaf.get(leaf.name)
        if known is None:
            known = self._by_leaf[leaf.name] = self._reserved_on_path(leaf)
        return known

    def _reserved_on_path(self, leaf: Node) -> list[ReservedQuota]:
        by_key: dict[tuple[QueueName, str], ReservedQuota] = {}
        for reservation in self.reservations:
            is_own = any(node.name == leaf.name for node, _ in reservation.charges)
            for node in leaf.path():
                for name, due in reservation.charges_by_queue.get(node.name, EMPTY).items():
                    if due <= 0 or not node.limits_resource(name):
                        continue
                    entry = by_key.setdefault((node.name, name), ReservedQuota(node, name, due))
                    entry.by_any = max(entry.by_any, due)
                    if is_own:
                        entry.by_own = max(entry.by_own or 0, due)
        return list(by_key.values())


def reserved_resources(
    known: ReservedResources | None,
    quota: Quota,
    workloads: WorkloadIndex,
    feasibility_cache: FeasibilityCache,
    windows: Mapping[str, Window],
) -> ReservedResources:
    """Return what the reservations set aside: *known*, where it was computed from the same objects.

    *windows* are those of the reservations, by owner.
    """
    inputs: list[object] = [quota.tree]
    for workload in workloads.with_reservation.values():
        inputs += workload, windows.get(owner_of(workload))
        if workload.uid in workloads.pending:
            inputs.append(feasibility_cache.get(workloads.pending.class_of(workload.uid).requirements))
    if known is not None and known.is_from(inputs):
        return known
    reservations = _reservations(quota, workloads, feasibility_cache)
    within = [reservation.within(windows.get(owner_of(reservation.first))) for reservation in reservations]
    reserved = ReservedResources(within, inputs)
    if known is not None:
        reserved.keep_equal(known)
    return reserved


def _precedence(reservation: JointReservation) -> tuple[int, int, OrderKey]:
    """Return the key that sorts reservations by precedence, oldest first."""
    return reservation.since, -reservation.priority, order_key(reservation.first)


def _reserved_capacity(reservations: Iterable[JointReservation]) -> ReservedCapacity:
    """Return the sum of *reservations* on each cluster."""
    amounts: dict[ClusterName, Resources] = {}
    for reservation in reservations:
        for name, charge in reservation.charges_by_cluster.items():
            amounts[name] = add(amounts.get(name, EMPTY), charge)
    return ReservedCapacity(amounts)


def _group_by_gang(workloads: Iterable[Workload]) -> Iterable[list[Workload]]:
    """Group workloads with a reservation by HyperJob."""
    groups: dict[object, list[Workload]] = {}
    for workload in workloads:
        groups.setdefault(workload.gang or workload.uid, []).append(workload)
    return groups.values()
