"""A HyperJob explained: its parts, why each goes where it does, and where each stands."""

import msgspec

from controller.api.hyperjobs import HyperJob
from controller.api.hyperjobstatus import PartStatus
from controller.cli.report.amounts import Amounts, positive_quantities
from controller.cli.snapshot import Snapshot
from controller.engine.workloads import Workload, WorkloadState
from controller.hyperjob.children import minimum_parts
from controller.hyperjob.preview import Preview
from controller.hyperjob.split import part_demands
from controller.messages import pending_message


class HyperJobPart(msgspec.Struct, rename="camel", frozen=True):
    """One part; *cluster* is empty where any cluster will do, *reason* where it does not wait."""

    name: str
    replicated_job: str
    cluster: str
    pods: int
    demand: Amounts
    why: str
    state: str
    clusters: tuple[str, ...]
    reason: str
    message: str
    retries: int


class HyperJobReport(msgspec.Struct, rename="camel", frozen=True):
    """One HyperJob; *decided* says that the controller has split it, not we just now."""

    namespace: str
    name: str
    phase: str
    reason: str
    message: str
    decided: bool
    min_available: int
    parts: tuple[HyperJobPart, ...]


def hyperjob_report(snapshot: Snapshot, hyperjob: HyperJob, found: Preview) -> HyperJobReport:
    """Return where *hyperjob* and each of its parts stand in *snapshot*."""
    trouble = found.trouble
    demands = part_demands(hyperjob, found.parts) if found.parts else []
    uid = hyperjob.metadata.uid
    own = {
        each.name: each
        for each in snapshot.state.workloads.values()
        if each.gang is not None and each.gang.hyperjob == uid
    }
    return HyperJobReport(
        namespace=hyperjob.metadata.namespace,
        name=hyperjob.metadata.name,
        phase=hyperjob.status.phase or "Pending",
        reason=trouble.reason if trouble else "",
        message=trouble.message if trouble else hyperjob.status.message,
        decided=found.is_decided,
        min_available=minimum_parts(hyperjob, len(found.parts)),
        parts=tuple(
            _part(snapshot, part, positive_quantities(amounts), own.get(part.name))
            for part, amounts in zip(found.parts, demands, strict=True)
        ),
    )


def _part(snapshot: Snapshot, part: PartStatus, amounts: Amounts, workload: Workload | None) -> HyperJobPart:
    refusal = snapshot.state.refusal(workload.uid) if workload else None
    return HyperJobPart(
        name=part.name,
        replicated_job=part.replicated_job,
        cluster=part.cluster,
        pods=sum(part.pods),
        demand=amounts,
        why=part.reason,
        state=_state(part, workload),
        clusters=_clusters(workload),
        reason=refusal.reason if refusal else "",
        message=pending_message(refusal) if refusal else "",
        retries=part.retries,
    )


def _state(part: PartStatus, workload: Workload | None) -> str:
    """Return what the engine says of a part; the controller's word where the engine does not know it any more."""
    return str(workload.state) if workload is not None and workload.state is not WorkloadState.FINISHED else part.phase


def _clusters(workload: Workload | None) -> tuple[str, ...]:
    admission = workload.admission if workload else None
    return tuple(booking.cluster for booking in admission.cluster_charges) if admission else ()
