"""Who waits, where in the queue, since when and why."""

import msgspec

from controller.cli.report.amounts import format_time
from controller.cli.report.plan import pending_workloads
from controller.cli.snapshot import Snapshot
from controller.engine.queues import QueueName
from controller.engine.reasons import Refusal
from controller.engine.workloads import Workload
from controller.messages import pending_message, remedy_message


class PendingReport(msgspec.Struct, rename="camel", frozen=True):
    """One workload that waits; ``since`` is null where nobody knows."""

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
    """Everyone who waits after the plan, by queue and position."""

    pending: tuple[PendingReport, ...]


def pending_reports(snapshot: Snapshot, queue: QueueName | None = None) -> Pending:
    """Return those who wait, in one queue or in all."""
    return Pending(
        tuple(
            _report(position, workload, refusal)
            for position, workload, refusal in pending_workloads(snapshot)
            if queue in {None, workload.queue}
        )
    )


def _report(position: int, workload: Workload, refusal: Refusal) -> PendingReport:
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
