"""Describes the workloads of one namespace to a reader of that namespace, without names of other workloads.

Pure. Other workloads are part of the position and the length of the queue only.
"""

from msgspec import structs

from controller.api.visibility import VisibleWorkload
from controller.cache.translate.units import format_time
from controller.engine.engine import Engine
from controller.engine.state.workloads import Workload, WorkloadState
from controller.reporting.messages import pending_message, remedy_message
from controller.reporting.redaction import redacted_refusal, same_namespace

_ORDER = (WorkloadState.PENDING, WorkloadState.ADMITTED, WorkloadState.FINISHED)


def workloads_of(state: Engine, namespace: str, *, kind: str = "", name: str = "") -> list[Workload]:
    """Return the workloads of *namespace*, all or those of a kind or name: pending ones first, by age and name."""
    chosen = (
        workload
        for workload in state.workloads.values()
        if workload.namespace == namespace and name in {"", workload.name} and kind in {"", workload.kind}
    )
    return sorted(chosen, key=lambda workload: (_ORDER.index(workload.state), workload.created_at, workload.name))


def describe(state: Engine, workload: Workload) -> VisibleWorkload:
    """Return what a reader of its namespace may know of *workload*."""
    admission = workload.admission if workload.state is WorkloadState.ADMITTED else None
    shown = VisibleWorkload(
        kind=workload.kind,
        name=workload.name,
        queue=workload.queue,
        state=workload.state,
        priority=workload.priority,
        since=format_time(workload.created_at) if workload.created_at else None,
        clusters=tuple(charge.cluster for charge in admission.cluster_charges) if admission is not None else (),
    )
    refusal = state.refusal(workload.uid)
    if refusal is None:
        return shown
    visible = redacted_refusal(refusal, same_namespace(workload.namespace))
    return structs.replace(
        shown,
        position=state.position(workload),
        of=state.pending_count(workload.queue),
        reason=visible.reason,
        message=pending_message(visible),
        remedy=remedy_message(visible),
    )
