"""Compares a workload's new state with its previous one."""

from dataclasses import replace

from controller.engine.state.clusters import ClusterName
from controller.engine.state.usage_tracker import has_same_charges
from controller.engine.state.workloads import Admission, Workload, WorkloadState


def is_noop_update(before: Workload, workload: Workload) -> bool:
    """Return whether an update of an admitted workload changes nothing that decisions depend on."""
    return _eviction_factors(before) == _eviction_factors(workload) and has_same_charges(before, workload)


def with_resize(before: Workload | None, workload: Workload) -> Workload:
    """Return *workload*, marked as resized while it runs again after it had finished (D7)."""
    if before is None or workload.state is not WorkloadState.ADMITTED or workload.admission is None:
        return workload
    ran_on = before.state is WorkloadState.FINISHED or (
        before.runs_after_finish and before.state is WorkloadState.ADMITTED
    )
    return replace(workload, runs_after_finish=True) if ran_on else workload


def with_move(before: Workload | None, workload: Workload, now: int) -> Workload:
    """Return *workload* with the time when others last changed its clusters, as far as it was observed (R1)."""
    if workload.state is not WorkloadState.ADMITTED or workload.admission is None:
        return workload
    if before is None or before.state is not WorkloadState.ADMITTED or before.admission is None:
        return replace(workload, placed_at=now) if workload.has_moved else workload
    has_changed = before.unplaced != workload.unplaced or _clusters(before.admission) != _clusters(workload.admission)
    return replace(workload, placed_at=max(workload.placed_at, now if has_changed else before.placed_at))


def _clusters(admission: Admission) -> set[ClusterName]:
    return {booking.cluster for booking in admission.cluster_charges}


def _eviction_factors(workload: Workload) -> tuple[object, ...]:
    """Return what decides, in addition to its charge, whether an admitted workload may be evicted."""
    return (
        workload.state,
        workload.has_aborted,
        workload.priority,
        workload.evictions,
        workload.preserved,
        workload.eviction_retry_at,
        workload.has_resized,
        workload.has_moved,
    )
