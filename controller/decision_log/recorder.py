"""Who takes every decision down: in the log always, in the journal where there is one."""

from collections import Counter as Tally
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from controller.cache.event_handler import EventHandler
from controller.decision_log.entries import PlanEntry
from controller.decision_log.log import DecisionLog
from controller.decision_log.records import DecisionRecord, RecordBuilder, record_fields
from controller.engine.plan import Plan, Wait
from controller.engine.state import State

#: More news of waiting workloads than this are told by their number only; the journal has them all.
_MAX_LOGGED_WAITS = 50

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CycleContext:
    """Under which a plan was made."""

    now: int
    most: int | None
    """After so many admissions it was to be cut."""
    revision: str
    """Of the VolcanoGlobalConfiguration."""


class DecisionRecorder:
    """Hears of every plan; without a journal it costs a line of the log for each decision."""

    def __init__(self, journal: DecisionLog | None = None) -> None:
        self._journal = journal
        self._number = 0

    def recording_handler(self, state: State) -> EventHandler:
        """Return who is to be told in place of *world*."""
        return state if self._journal is None else self._journal.recording_handler(state)

    def start_file(self, state: State, now: int) -> None:
        """Hear that *world*, which knows nothing, takes the place of the one before."""
        if self._journal is not None:
            self._journal.start_file(state, now)

    def rotate_if_due(self, state: State, now: int) -> None:
        """Begin another file where that is due."""
        if self._journal is not None:
            self._journal.rotate_if_due(state, now)

    def record_plan(self, state: State, plan: Plan, context: CycleContext) -> None:
        """Take down what *world* has just planned."""
        builder, is_told = RecordBuilder(state), len(plan.waits) <= _MAX_LOGGED_WAITS
        decided = builder.plan_records(plan)
        waits = builder.pending_records(plan.waits) if is_told or self._journal is not None else []
        self._number += 1
        for record in (*decided, *(waits if is_told else ())):
            _log_record(record, self._number, context.revision)
        if not is_told:
            _log_counts(plan.waits)
        if self._journal is not None:
            records = (*decided, *waits)
            planned = PlanEntry(self._number, context.now, context.most, context.revision, len(records))
            self._journal.record_plan(planned, records)


def _log_record(record: DecisionRecord, plan: int, revision: str) -> None:
    event = "workload waits" if record.action == "Wait" else "decision"
    log.info(event, workload=record.workload.path, **record_fields(record, plan, revision))


def _log_counts(waits: Iterable[Wait]) -> None:
    for reason, count in sorted(Tally(wait.refusal.reason for wait in waits).items()):
        log.info("workloads wait", reason=reason, count=count)
