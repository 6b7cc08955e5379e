"""Explains a HyperJob: its parts, their clusters and why, and their states."""

import msgspec

from controller.api.hyperjobs import HyperJob, PartStatus
from controller.cli.input.snapshot import Snapshot
from controller.cli.report.amounts import Amounts, positive_quantities
from controller.controllers.hyperjob.children import minimum_parts
from controller.controllers.hyperjob.preview import Preview
from controller.controllers.hyperjob.split import requests_of_parts
from controller.engine.state.workloads import Workload, WorkloadState
from controller.reporting.messages import pending_message


class HyperJobPart(msgspec.Struct, rename="camel", frozen=True):
    """One part; *cluster* is empty if any cluster is possible, *reason* if it is not pending."""

    name: str
    replicated_job: str
    cluster: str
    pods: int
    requests: Amounts
    why: str
    state: str
    clusters: tuple[str, ...]
    reason: str
    message: str
    retries: int


class HyperJobReport(msgspec.Struct, rename="camel", frozen=True):
    """One HyperJob; *decided* is true if the controller has split it, false if this is a preview."""

    namespace: str
    name: str
    phase: str
    reason: str
    message: str
    decided: bool
    min_available: int
    parts: tuple[HyperJobPart, ...]


def hyperjob_report(snapshot: Snapshot, hyperjob: HyperJob, split: Preview) -> HyperJobReport:
    """Return the state of *hyperjob* and its parts in *snapshot*."""
    reason = split.pending_reason
    demands = requests_of_parts(hyperjob, split.parts) if split.parts else []
    uid = hyperjob.metadata.uid
    workloads = {
        workload.name: workload
        for workload in snapshot.state.workloads.values()
        if workload.gang is not None and workload.gang.hyperjob == uid
    }
    return HyperJobReport(
        namespace=hyperjob.metadata.namespace,
        name=hyperjob.metadata.name,
        phase=hyperjob.status.phase or "Pending",
        reason=reason.reason if reason else "",
        message=reason.message if reason else hyperjob.status.message,
        decided=split.is_decided,
        min_available=minimum_parts(hyperjob, len(split.parts)),
        parts=tuple(
            _part(snapshot, part, positive_quantities(amounts), workloads.get(part.name))
            for part, amounts in zip(split.parts, demands, strict=True)
        ),
    )


def _part(snapshot: Snapshot, part: PartStatus, amounts: Amounts, workload: Workload | None) -> HyperJobPart:
    refusal = snapshot.state.refusal(workload.uid) if workload else None
    return HyperJobPart(
        name=part.name,
        replicated_job=part.replicated_job,
        cluster=part.cluster,
        pods=sum(part.pods),
        requests=amounts,
        why=part.reason,
        state=_part_state(part, workload),
        clusters=_part_clusters(workload),
        reason=refusal.reason if refusal else "",
        message=pending_message(refusal) if refusal else "",
        retries=part.retries,
    )


def _part_state(part: PartStatus, workload: Workload | None) -> str:
    """Return the engine's state of a part, or its recorded phase if the engine no longer has it."""
    return str(workload.state) if workload is not None and workload.state is not WorkloadState.FINISHED else part.phase


def _part_clusters(workload: Workload | None) -> tuple[str, ...]:
    admission = workload.admission if workload else None
    return tuple(booking.cluster for booking in admission.cluster_charges) if admission else ()
