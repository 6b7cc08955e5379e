"""Replays a decision log: applies its inputs to a new state, and compares each decision with the recorded one.

Pure, except for reading lines.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from controller.engine.checkpoint import restore
from controller.engine.engine import Engine
from controller.engine.plan import Plan
from controller.engine.state.hierarchy import Queue
from controller.engine.state.workloads import Workload, WorkloadUid
from controller.reporting.decision_log.codec import (
    SCHEMA,
    CheckpointEntry,
    ClusterChanged,
    ClusterEstimated,
    ClusterRemoved,
    DecisionEntry,
    Entry,
    EntryDecoder,
    Header,
    LineError,
    PlanEntry,
    PolicyChanged,
    QueueChanged,
    QueueRemoved,
    StateChange,
    WorkloadChanged,
    WorkloadRemoved,
)
from controller.reporting.decision_log.records import DecisionRecord, Fields, RecordBuilder, record_fields

#: Maximum number of differences in the result; later ones may follow from the first.
_MAX_DIFFERENCES: Final = 100


class DecisionLogError(ValueError):
    """A file that is not a decision log; the message names the line."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """A recorded decision with its plan and time."""

    line: int
    plan: int
    at: int
    fields: Fields


@dataclass(frozen=True, slots=True)
class Difference:
    """A recorded decision that differs from the replayed one; either may be missing."""

    line: int
    plan: int
    at: int
    recorded: Fields | None
    replayed: Fields | None


@dataclass(slots=True)
class ReplayResult:
    """The result of a replay."""

    begun: Header | None = None
    until: int | None = None
    """Time of the last plan, in milliseconds."""
    plans: int = 0
    decisions: int = 0
    different: int = 0
    differences: list[Difference] = field(default_factory=list)
    """The first differences."""
    first_tampered_line: int | None = None
    """The first line with a digest that does not match the lines before it."""
    notes: list[str] = field(default_factory=list)
    """Other notes, for example about a truncated end."""

    @property
    def is_identical(self) -> bool:
        """Return whether the file is unmodified and every decision was reproduced."""
        return not self.different and self.first_tampered_line is None


def replay(
    lines: Iterable[bytes], wanted: Callable[[Fields], bool] = lambda _: True
) -> tuple[ReplayResult, list[RecordedDecision]]:
    """Replay *lines*; return the result and the recorded decisions that *wanted* selects.

    Raises ``DecisionLogError`` for a file that is not a decision log.
    """
    replayer = _Replayer(wanted)
    for number, entry in _entries(lines, replayer.result):
        replayer.apply(number, entry)
    replayer.finish()
    return replayer.result, replayer.decisions


@dataclass(frozen=True, slots=True)
class ReplayedPlan:
    """One plan of a decision log, made again."""

    engine: Engine
    plan: Plan
    entry: PlanEntry
    is_intact: bool
    """Whether no line before it was altered, and its decisions are the recorded ones."""


def replay_plan(lines: Iterable[bytes], number: int, before: Callable[[Engine, PlanEntry], None]) -> ReplayedPlan:
    """Replay *lines* up to plan *number* and return it; *before* gets the state without the plan.

    Earlier plans are made again without a comparison. Raises ``DecisionLogError``.
    """
    replayer = _Replayer(lambda _: False)
    line = 0
    for line, entry in _entries(lines, replayer.result):
        if isinstance(entry, PlanEntry):
            replayer.compares = entry.number == number
            if replayer.compares:
                before(replayer.engine, entry)
        replayer.apply(line, entry)
        if replayer.last is not None and replayer.last[0].number == number:
            planned, plan = replayer.last
            return ReplayedPlan(replayer.engine, plan, planned, replayer.result.is_identical)
    raise DecisionLogError(line, f"plan {number} is missing or incomplete")


def recorded_decisions(
    lines: Iterable[bytes], wanted: Callable[[Fields], bool]
) -> tuple[ReplayResult, list[RecordedDecision]]:
    """Return the recorded decisions that *wanted* selects, without replaying them; raise ``DecisionLogError``."""
    result, decisions = ReplayResult(), list[RecordedDecision]()
    planned: PlanEntry | None = None
    for number, entry in _entries(lines, result):
        if isinstance(entry, PlanEntry):
            planned = entry
        elif isinstance(entry, DecisionEntry) and planned is not None and wanted(entry.fields):
            decisions.append(RecordedDecision(number, planned.number, planned.now, entry.fields))
    return result, decisions


def _entries(lines: Iterable[bytes], result: ReplayResult) -> Iterator[tuple[int, Entry]]:
    """Yield the entries with their line numbers; a truncated last line is noted and skipped."""
    decoder, number = EntryDecoder(), 0
    for number, line in enumerate(lines, start=1):
        try:
            entry = decoder.decode(line)
        except LineError as error:
            if number == 1 or line.endswith(b"\n"):
                raise DecisionLogError(number, str(error)) from error
            result.notes.append(f"line {number}, the last one, is truncated and was skipped")
            return
        if (number == 1) != isinstance(entry, Header):
            raise DecisionLogError(number, "a decision log has one line of type 'begin', the first one")
        if isinstance(entry, Header) and entry.schema != SCHEMA:
            raise DecisionLogError(number, f"schema {entry.schema} is not supported; expected {SCHEMA}")
        if not decoder.is_intact and result.first_tampered_line is None:
            result.first_tampered_line = number
        if entry is not None:
            yield number, entry
    if number == 0:
        raise DecisionLogError(1, "the file is empty")


class _Replayer:
    """Applies entries to a state and compares its decisions."""

    def __init__(self, wanted: Callable[[Fields], bool]) -> None:
        self._wanted = wanted
        self.result = ReplayResult()
        self.decisions: list[RecordedDecision] = []
        self.engine = Engine()
        self._known: tuple[list[Queue], list[Workload]] | None = None
        """Queues and workloads of the initial snapshot, until it is complete."""
        self._planned: tuple[int, PlanEntry] | None = None
        """The plan of the decisions that are being read, and its line."""
        self._recorded: list[RecordedDecision] = []
        self._number: int | None = None
        """Number of the last plan."""
        self.compares = True
        """Whether decisions are compared with the recorded ones."""
        self.last: tuple[PlanEntry, Plan] | None = None
        """The last plan."""

    def apply(self, line: int, entry: Entry) -> None:
        """Apply one entry."""
        if (self._planned is None) == isinstance(entry, DecisionEntry):
            why = "it belongs to no plan" if self._planned is None else f"expected {self._missing()}"
            raise DecisionLogError(line, why)
        if isinstance(entry, Header):
            self.result.begun = entry
            self.engine = Engine(entry.policy)
            self._known = None if entry.is_whole else ([], [])
        elif isinstance(entry, PlanEntry):
            self._planned, self._recorded = (line, entry), []
            self._compare_if_complete()
        elif isinstance(entry, DecisionEntry):
            self._add_decision(line, entry)
        elif self._known is not None:
            self._collect_snapshot(line, entry, *self._known)
        elif isinstance(entry, CheckpointEntry):
            raise DecisionLogError(line, "it is not part of a snapshot")
        else:
            _apply(self.engine, entry)

    def _missing(self) -> str:
        number, left = (self._planned[1].number, self._planned[1].verdicts) if self._planned else (0, 0)
        return f"{left - len(self._recorded)} more decisions of plan {number}"

    def _collect_snapshot(self, line: int, entry: Entry, queues: list[Queue], workloads: list[Workload]) -> None:
        """Collect one entry of the initial snapshot."""
        if isinstance(entry, QueueChanged):
            queues.append(entry.queue)
        elif isinstance(entry, WorkloadChanged):
            workloads.append(entry.workload)
        elif isinstance(entry, CheckpointEntry):
            self.engine = restore(self.engine.policy, queues, workloads, entry.memory, entry.now)
            self._known = None
        else:
            raise DecisionLogError(line, "it is inside the snapshot at the start of the file")

    def _add_decision(self, line: int, entry: DecisionEntry) -> None:
        if self._planned is not None:
            planned = self._planned[1]
            self._recorded.append(RecordedDecision(line, planned.number, planned.now, entry.fields))
            self._compare_if_complete()

    def _compare_if_complete(self) -> None:
        """Make the plan and compare it, as soon as all its recorded decisions were read."""
        if self._planned is None or len(self._recorded) < self._planned[1].verdicts:
            return
        (line, planned), self._planned = self._planned, None
        if self._number is not None and planned.number != self._number + 1:
            raise DecisionLogError(line, f"plan {planned.number} cannot follow plan {self._number}")
        self._number = planned.number
        plan = self.engine.plan(planned.now, most=planned.most)
        self.last = planned, plan
        result = self.result
        result.plans += 1
        result.decisions += len(self._recorded)
        result.until = planned.now
        self.decisions += [recorded for recorded in self._recorded if self._wanted(recorded.fields)]
        if not self.compares:
            return
        for recorded, replayed in _pairs(self.engine, plan, self._recorded, planned):
            if recorded is None or recorded.fields != replayed:
                result.different += 1
                change = (recorded.line, recorded.fields) if recorded else (line, None)
                result.differences.append(Difference(change[0], planned.number, planned.now, change[1], replayed))
                del result.differences[_MAX_DIFFERENCES:]

    def finish(self) -> None:
        """Note what is missing at the end of the file."""
        if self._planned is not None:
            self.result.notes.append(f"the last plan is truncated and was skipped: {self._missing()} are missing")
        if self._known is not None:
            self.result.notes.append("the snapshot at the start of the file is truncated; there are no decisions")


def _apply(engine: Engine, change: StateChange) -> None:
    match change:
        case PolicyChanged(policy=policy):
            engine.policy_changed(policy)
        case QueueChanged(queue=queue):
            engine.queue_changed(queue)
        case QueueRemoved(name=queue_name):
            engine.queue_removed(queue_name)
        case ClusterChanged(cluster=cluster, now=now):
            engine.cluster_changed(cluster, now)
        case ClusterRemoved(name=name):
            engine.cluster_removed(name)
        case ClusterEstimated(estimate=estimate, now=now):
            engine.cluster_estimated(estimate, now)
        case WorkloadChanged(workload=workload, now=now):
            engine.workload_changed(workload, now)
        case WorkloadRemoved(uid=uid, now=now, is_released=is_released):
            engine.workload_removed(uid, now, is_released=is_released)


def _pairs(
    engine: Engine, plan: Plan, recorded: Iterable[RecordedDecision], planned: PlanEntry
) -> Iterator[tuple[RecordedDecision | None, Fields | None]]:
    """Yield recorded decisions with the replayed ones.

    When a changed pending reason is published depends on no decision, so recorded reasons are compared with the present
    reason of the workload.
    """
    builder = RecordBuilder(engine)
    replayed = [record_fields(record, planned.number, planned.revision) for record in builder.plan_records(plan)]
    decided = [decision for decision in recorded if decision.fields.get("action") != "Wait"]
    yield from zip_longest(decided, replayed)
    for decision in recorded:
        if decision.fields.get("action") == "Wait":
            pending = _pending_record(engine, builder, decision.fields.get("uid"))
            yield decision, record_fields(pending, planned.number, planned.revision) if pending else None


def _pending_record(engine: Engine, builder: RecordBuilder, uid: object) -> DecisionRecord | None:
    """Return the record of a pending workload, ``None`` if it is not pending."""
    workload = engine.workloads.get(WorkloadUid(uid)) if isinstance(uid, str) else None
    refusal = engine.refusal(workload.uid) if workload else None
    return builder.pending_record(workload, refusal, engine.position(workload)) if workload and refusal else None
