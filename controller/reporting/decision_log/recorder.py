"""Records every decision: in the log, and in the decision log if there is one."""

from collections import Counter as Tally
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from controller.cache.event_handler import EventHandler
from controller.engine.engine import Engine
from controller.engine.plan import Plan, Wait
from controller.reporting.decision_log.entries import PlanEntry
from controller.reporting.decision_log.log import DecisionLog
from controller.reporting.decision_log.records import DecisionRecord, RecordBuilder, record_fields

#: Up to this number, changed pending reasons are logged one by one, beyond it as counts; the decision log has them all.
_MAX_LOGGED_WAITS = 50

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CycleContext:
    """The inputs of a plan other than the state."""

    now: int
    most: int | None
    """Maximum number of admissions."""
    revision: str
    """Revision of the VolcanoGlobalConfiguration."""


class DecisionRecorder:
    """Records every plan; without a decision log it writes one log line per decision."""

    def __init__(self, decision_log: DecisionLog | None = None) -> None:
        self._decision_log = decision_log
        self._number = 0

    def recording_handler(self, state: Engine) -> EventHandler:
        """Return the event handler for the changes of *state*."""
        return state if self._decision_log is None else self._decision_log.recording_handler(state)

    def start_file(self, state: Engine, now: int) -> None:
        """Start a file for *state*, an empty one that replaces the previous state."""
        if self._decision_log is not None:
            self._decision_log.start_file(state, now)

    def rotate_if_due(self, state: Engine, now: int) -> None:
        """Start another file if due."""
        if self._decision_log is not None:
            self._decision_log.rotate_if_due(state, now)

    def record_plan(self, state: Engine, plan: Plan, context: CycleContext) -> None:
        """Record *plan*, which *state* has just made."""
        builder, is_logged = RecordBuilder(state), len(plan.waits) <= _MAX_LOGGED_WAITS
        decided = builder.plan_records(plan)
        waits = builder.pending_records(plan.waits) if is_logged or self._decision_log is not None else []
        self._number += 1
        for record in (*decided, *(waits if is_logged else ())):
            _log_record(record, self._number, context.revision)
        if not is_logged:
            _log_counts(plan.waits)
        if self._decision_log is not None:
            records = (*decided, *waits)
            planned = PlanEntry(self._number, context.now, context.most, context.revision, len(records))
            self._decision_log.record_plan(planned, records)


def _log_record(record: DecisionRecord, plan: int, revision: str) -> None:
    event = "workload pending" if record.action == "Wait" else "decision made"
    log.info(event, workload=record.workload.path, **record_fields(record, plan, revision))


def _log_counts(waits: Iterable[Wait]) -> None:
    for reason, count in sorted(Tally(wait.refusal.reason for wait in waits).items()):
        log.info("workloads pending", reason=reason, count=count)
