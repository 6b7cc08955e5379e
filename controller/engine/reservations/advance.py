"""Keeps clusters free for advance reservations: maintenance windows, and capacity of one queue or workload (O11)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from controller.engine.plan import Assume, Evict
from controller.engine.policy import AdvanceReservation, Policy
from controller.engine.reasons import EvictionReason
from controller.engine.state.cluster_usage import earliest
from controller.engine.state.workload_index import WorkloadIndex
from controller.engine.state.workloads import ReservedCluster, Workload, WorkloadState

if TYPE_CHECKING:
    from controller.engine.state.clusters import ClusterName


def reserved_clusters(
    reservations: Iterable[AdvanceReservation], workload: Workload, now: int
) -> tuple[ReservedCluster, ...]:
    """Return the clusters that *workload* may not use if it is admitted at *now*, each with its first reservation."""
    found: dict[ClusterName, str] = {}
    for reservation in reservations:
        if now < reservation.until and not _is_for(reservation, workload) and _bound_from(reservation, workload) <= now:
            for cluster in reservation.clusters:
                found.setdefault(cluster, reservation.name)
    return tuple(ReservedCluster(cluster, found[cluster]) for cluster in sorted(found))


def next_change(reservations: Iterable[AdvanceReservation], workload: Workload, now: int) -> int | None:
    """Return when ``reserved_clusters`` of *workload* changes next."""
    times = (
        at
        for reservation in reservations
        if not _is_for(reservation, workload)
        for at in (_bound_from(reservation, workload), reservation.until)
    )
    return earliest(at for at in times if at > now)


def _is_for(reservation: AdvanceReservation, workload: Workload) -> bool:
    return workload.queue == reservation.queue or (workload.namespace, workload.name) == reservation.workload


def _bound_from(reservation: AdvanceReservation, workload: Workload) -> int:
    """Return from when on *workload* would not end before the reservation begins."""
    if workload.run_time_ms is None:
        return reservation.since - reservation.drain_ms
    return min(reservation.since - workload.run_time_ms + 1, reservation.since)


def running_on_reserved(reservations: Sequence[AdvanceReservation], workloads: WorkloadIndex) -> Iterator[Workload]:
    """Yield the admitted workloads on clusters of *reservations* that keep them off."""
    for by_uid in workloads.admitted.values():
        for workload in by_uid.values():
            charges = workload.admission.cluster_charges if workload.admission is not None else ()
            used = {charge.cluster for charge in charges}
            if any(used.intersection(each.clusters) and not _is_for(each, workload) for each in reservations):
                yield workload


class AdvanceReservations:
    """Evicts what still runs on the clusters of a reservation when it begins, where that is asked for."""

    def __init__(self, workloads: WorkloadIndex, assume: Assume) -> None:
        self._workloads = workloads
        self._assume = assume

    def evict(self, policy: Policy, now: int) -> list[Evict]:
        """Evict the workloads on the clusters of reservations in force, with the parts that cannot run without them."""
        evicted: list[Evict] = []
        for workload in self._to_evict(policy, now):
            current = self._workloads[workload.uid]
            if current.state is not WorkloadState.ADMITTED or current.eviction_retry_at > now:
                continue
            for part in (current, *self._workloads.gangs.dependents(current, self._workloads.by_uid)):
                if part.eviction_retry_at <= now:
                    self._assume(part.evicted(), now)
                    grace_ms = policy.preemption.grace_ms
                    evicted.append(Evict(part, EvictionReason.ADVANCE_RESERVATION, grace_ms=grace_ms))
        return evicted

    def next_eviction(self, policy: Policy, now: int) -> int | None:
        """Return when ``evict`` is due next."""
        begins = (each.since for each in policy.advance_reservations if each.evicts and each.since > now)
        retries = (workload.eviction_retry_at for workload in self._to_evict(policy, now))
        return earliest((*begins, *retries))

    def _to_evict(self, policy: Policy, now: int) -> list[Workload]:
        due = [each for each in policy.advance_reservations if each.evicts and each.since <= now < each.until]
        movable = (
            workload
            for workload in (running_on_reserved(due, self._workloads) if due else ())
            if not workload.preserved and workload.admission is not None and not workload.admission.adopted
        )
        return sorted(movable, key=lambda workload: workload.uid)
