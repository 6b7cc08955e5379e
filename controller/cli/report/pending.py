"""Reports pending workloads with position, pending time and reason."""

import msgspec

from controller.cli.commands.plan import pending_workloads
from controller.cli.input.snapshot import Snapshot
from controller.cli.report.amounts import format_time
from controller.engine.reasons import Refusal
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import Workload
from controller.reporting.messages import pending_message, remedy_message


class PendingReport(msgspec.Struct, rename="camel", frozen=True):
    """One pending workload; ``since`` is null if unknown."""

    queue: str
    position: int
    kind: str
    namespace: str
    name: str
    priority: int
    priority_class: str
    since: str | None
    reason: str
    message: str
    remedy: str


class Pending(msgspec.Struct, frozen=True):
    """The pending workloads after the plan, by queue and position."""

    pending: tuple[PendingReport, ...]


def pending_reports(snapshot: Snapshot, queue: QueueName | None = None) -> Pending:
    """Return the pending workloads of *queue* or of all queues."""
    return Pending(
        tuple(
            _pending_report(position, workload, refusal)
            for position, workload, refusal in pending_workloads(snapshot)
            if queue in {None, workload.queue}
        )
    )


def _pending_report(position: int, workload: Workload, refusal: Refusal) -> PendingReport:
    return PendingReport(
        queue=workload.queue,
        position=position,
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        priority=workload.priority,
        priority_class=workload.priority_class,
        since=format_time(workload.created_at),
        reason=refusal.reason,
        message=pending_message(refusal),
        remedy=remedy_message(refusal),
    )
