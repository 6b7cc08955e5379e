"""Reports the plan of one scheduling cycle; the JSON form is a stable interface for programs."""

from collections.abc import Iterator

import msgspec

from controller.cli.input.snapshot import Snapshot
from controller.cli.report.borrowing import borrowing_notes
from controller.cli.report.queues import QueueShareReport, queue_share_reports
from controller.engine.plan import Admit, Decision
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import Assignment
from controller.engine.state.workloads import Workload
from controller.reporting.messages import EVICTION_MESSAGES, pending_message


class ClusterTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cluster of an admission, with replicas if they are divided."""

    name: str
    replicas: int | None = None


class DecisionReport(msgspec.Struct, frozen=True):
    """One decision, or one workload that remains pending."""

    kind: str
    namespace: str
    name: str
    queue: str
    action: str
    clusters: tuple[ClusterTarget, ...]
    reason: str | None
    message: str


class PlanReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The decisions of one cycle in order, then pending workloads; and the queues after the cycle."""

    decisions: tuple[DecisionReport, ...]
    queues: tuple[QueueShareReport, ...]
    notes: tuple[str, ...] = ()
    """Results that may be unexpected but are intended."""


def plan_report(snapshot: Snapshot) -> PlanReport:
    """Return the decisions in order, then the pending workloads without a decision, by queue and position."""
    decided = (_decided_report(decision) for decision in snapshot.plan.decisions)
    evicted = {decision.workload.uid for decision in snapshot.plan.decisions}
    waiting = (
        _wait_report(workload, refusal)
        for _, workload, refusal in pending_workloads(snapshot)
        if workload.uid not in evicted
    )
    return PlanReport((*decided, *waiting), queue_share_reports(snapshot), borrowing_notes(snapshot))


def pending_workloads(snapshot: Snapshot) -> Iterator[tuple[int, Workload, Refusal]]:
    """Yield position, workload and reason of each pending workload, by queue and position."""
    for queue in snapshot.state.queues_with_pending():
        for position, workload in enumerate(snapshot.state.pending_workloads(queue), start=1):
            refusal = snapshot.state.refusal(workload.uid)
            if refusal is not None:
                yield position, workload, refusal


def _decided_report(decision: Decision) -> DecisionReport:
    if isinstance(decision, Admit):
        return _decision_report(decision.workload, "Admit", clusters=_targets(decision.clusters))
    message = EVICTION_MESSAGES[decision.reason] if decision.back_off is None else decision.back_off.message
    return _decision_report(decision.workload, "Evict", reason=decision.reason, message=message)


def _wait_report(workload: Workload, refusal: Refusal) -> DecisionReport:
    is_nominated = refusal.reason is Reason.PREEMPTION_IN_PROGRESS and refusal.cluster is not None
    clusters = (ClusterTarget(refusal.cluster),) if is_nominated and refusal.cluster else ()
    return _decision_report(
        workload, "Wait", clusters=clusters, reason=refusal.reason, message=pending_message(refusal)
    )


def _decision_report(
    workload: Workload,
    action: str,
    *,
    clusters: tuple[ClusterTarget, ...] = (),
    reason: str | None = None,
    message: str = "",
) -> DecisionReport:
    return DecisionReport(
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        queue=workload.queue,
        action=action,
        clusters=clusters,
        reason=reason,
        message=message,
    )


def _targets(assignments: tuple[Assignment, ...]) -> tuple[ClusterTarget, ...]:
    return tuple(ClusterTarget(assignment.name, assignment.replicas) for assignment in assignments)
