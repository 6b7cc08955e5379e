"""What a new version of a workload changes, and what it keeps of the version before."""

from collections.abc import Iterator
from dataclasses import replace

from controller.engine.state.clusters import ClusterName
from controller.engine.state.workloads import Admission, Workload, WorkloadState


def has_same_charges(before: Workload, workload: Workload) -> bool:
    """Return whether both hold the same charges on the same clusters."""
    return (
        before.admission is not None
        and workload.admission is not None
        and (before.queue, before.namespace) == (workload.queue, workload.namespace)
        and before.admission.charge == workload.admission.charge
        and set(_charges_by_cluster(before.admission)) == set(_charges_by_cluster(workload.admission))
    )


def _charges_by_cluster(admission: Admission) -> Iterator[tuple[ClusterName, tuple[tuple[str, int], ...]]]:
    """Yield the charge of each cluster, hashable; the order has no meaning."""
    for cluster_charge in admission.cluster_charges:
        yield cluster_charge.cluster, tuple(sorted(cluster_charge.charge.items()))


def is_noop_update(before: Workload, workload: Workload) -> bool:
    """Return whether an update of an admitted workload changes nothing that decisions depend on."""
    begins_start = workload.awaits_start and not before.awaits_start
    is_alike = _eviction_factors(before) == _eviction_factors(workload)
    return is_alike and not begins_start and has_same_charges(before, workload)


def with_rerun(before: Workload | None, workload: Workload, *, is_accepted: bool) -> Workload:
    """Return *workload*, marked as resized where it runs again after it had finished, until that is accepted (D7)."""
    if before is None or workload.state is not WorkloadState.ADMITTED or workload.admission is None:
        return workload
    ran_on = before.state is WorkloadState.FINISHED or (
        before.details.runs_after_finish and before.admission is not None and not is_accepted
    )
    return replace(workload, details=replace(workload.details, runs_after_finish=True)) if ran_on else workload


def with_resize_before_eviction(before: Workload | None, workload: Workload) -> Workload:
    """Return *workload*, still marked as resized while it is being evicted (Q1)."""
    if before is None or before.admission is None or workload.admission is None or not workload.is_being_evicted:
        return workload
    was_resized = before.has_resized or (before.is_being_evicted and before.admission.resized)
    return replace(workload, admission=replace(workload.admission, resized=True)) if was_resized else workload


def with_long_grace_period(before: Workload | None, workload: Workload) -> Workload:
    """Return *workload*, whose pods end as late as before: a changed or deleted template does not change them."""
    is_known = workload.details.has_long_grace_period
    if is_known or before is None or before.admission is None or not before.details.has_long_grace_period:
        return workload
    return replace(workload, details=replace(workload.details, has_long_grace_period=True))


def with_placement_time(before: Workload | None, workload: Workload, now: int) -> Workload:
    """Return *workload* with the time from which it has to start anew, as far as it was observed (R1)."""
    if workload.state is not WorkloadState.ADMITTED or workload.admission is None:
        return workload
    details = workload.details
    if before is None or before.state is not WorkloadState.ADMITTED or before.admission is None:
        runs_again = before is not None and before.state is WorkloadState.FINISHED
        placed_at = now if workload.has_moved or runs_again else details.placed_at
    else:
        has_changed = (
            before.details.unplaced != details.unplaced
            or before.admission.clusters != workload.admission.clusters
            # Where it ran, was suspended or had no pods, as a Deployment of zero replicas, it has pods to start now.
            or (workload.awaits_start and not before.awaits_start)
        )
        placed_at = max(details.placed_at, now if has_changed else before.details.placed_at)
    return (
        workload if placed_at == details.placed_at else replace(workload, details=replace(details, placed_at=placed_at))
    )


def _eviction_factors(workload: Workload) -> tuple[object, ...]:
    """Return what decides, in addition to its charge, whether an admitted workload may or must be evicted."""
    return (
        workload.state,
        workload.is_admitted_here,
        workload.gang,
        workload.hold,
        workload.priority,
        workload.priority_class,
        workload.evictions,
        workload.preserved,
        workload.eviction_retry_at,
        workload.has_resized,
        workload.has_moved,
    )
