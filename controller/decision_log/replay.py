"""A journal judged again: its inputs told to a new World, and each decision compared with what was taken down.

Pure, but for the lines that it reads one by one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from controller.decision_log.codec import EntryDecoder, LineError
from controller.decision_log.entries import (
    SCHEMA,
    CheckpointEntry,
    ClusterChanged,
    ClusterEstimated,
    ClusterRemoved,
    DecisionEntry,
    Entry,
    Header,
    PlanEntry,
    PolicyChanged,
    QueueChanged,
    QueueRemoved,
    StateChange,
    WorkloadChanged,
    WorkloadRemoved,
)
from controller.decision_log.records import DecisionRecord, Fields, RecordBuilder, record_fields
from controller.engine.checkpoint import restore
from controller.engine.plan import Plan
from controller.engine.queues import Queue
from controller.engine.state import State
from controller.engine.workloads import Workload, WorkloadUid

#: So many differences are kept; those after a first one may follow from it.
_MAX_DIFFERENCES: Final = 100


class DecisionLogError(ValueError):
    """A file that is no journal; the message names the line."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """One decision as it was taken down, with its plan and time."""

    line: int
    plan: int
    at: int
    fields: Fields


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that was taken down otherwise than it is taken now; one of both may be missing."""

    line: int
    plan: int
    at: int
    recorded: Fields | None
    replayed: Fields | None


@dataclass(slots=True)
class ReplayResult:
    """What came of a replay."""

    begun: Header | None = None
    until: int | None = None
    """When the last plan was made, in milliseconds."""
    plans: int = 0
    decisions: int = 0
    different: int = 0
    differences: list[Difference] = field(default_factory=list)
    """The first of them."""
    altered_before: int | None = None
    """The line of the first plan that tells that something before it is not as it was written."""
    remarks: list[str] = field(default_factory=list)
    """What else is to be known."""

    @property
    def is_same(self) -> bool:
        """Say whether the journal is what was written, and all is decided as it says."""
        return not self.different and self.altered_before is None


def replay(
    lines: Iterable[bytes], wanted: Callable[[Fields], bool] = lambda _: True
) -> tuple[ReplayResult, list[RecordedDecision]]:
    """Return whether a new World decides as the journal in *lines* says, and those that it says which are *wanted*.

    Raises ``JournalError`` for what is no journal.
    """
    replayer = _Replayer(wanted)
    for number, entry in _entries(lines, replayer.result):
        replayer.apply(number, entry)
    replayer.finish()
    return replayer.result, replayer.decisions


def _entries(lines: Iterable[bytes], result: ReplayResult) -> Iterator[tuple[int, Entry]]:
    """Yield the entries with the numbers of their lines; a last line that is cut off is remarked and left out."""
    decoder, number = EntryDecoder(), 0
    for number, line in enumerate(lines, start=1):
        try:
            entry = decoder.decode(line)
        except LineError as error:
            if number == 1 or line.endswith(b"\n"):
                raise DecisionLogError(number, str(error)) from error
            result.remarks.append(f"line {number}, the last one, is cut off and was left out")
            return
        if (number == 1) != isinstance(entry, Header):
            raise DecisionLogError(number, "a journal begins with a line of type 'begin', and has one only")
        if isinstance(entry, Header) and entry.schema != SCHEMA:
            raise DecisionLogError(number, f"schema {entry.schema} is not read, only {SCHEMA}")
        if not decoder.is_intact and result.altered_before is None:
            result.altered_before = number
        if entry is not None:
            yield number, entry
    if number == 0:
        raise DecisionLogError(1, "the file is empty")


class _Replayer:
    """Tells a World what the entries say, and compares what it decides."""

    def __init__(self, wanted: Callable[[Fields], bool]) -> None:
        self._wanted = wanted
        self.result = ReplayResult()
        self.decisions: list[RecordedDecision] = []
        self._state = State()
        self._known: tuple[list[Queue], list[Workload]] | None = None
        """What a World that is not new knew, until all of it is told."""
        self._planned: tuple[int, PlanEntry] | None = None
        """The plan whose decisions are being read, and its line."""
        self._recorded: list[RecordedDecision] = []
        self._number: int | None = None
        """The last plan's."""

    def apply(self, line: int, entry: Entry) -> None:
        """Take one entry."""
        if (self._planned is None) == isinstance(entry, DecisionEntry):
            why = "it belongs to no plan" if self._planned is None else f"{self._missing()} should stand here"
            raise DecisionLogError(line, why)
        if isinstance(entry, Header):
            self.result.begun = entry
            self._state = State(entry.policy)
            self._known = None if entry.is_whole else ([], [])
        elif isinstance(entry, PlanEntry):
            self._planned, self._recorded = (line, entry), []
            self._compare_if_complete()
        elif isinstance(entry, DecisionEntry):
            self._add_decision(line, entry)
        elif self._known is not None:
            self._collect_snapshot(line, entry, *self._known)
        elif isinstance(entry, CheckpointEntry):
            raise DecisionLogError(line, "nothing was known before")
        else:
            _apply(self._state, entry)

    def _missing(self) -> str:
        number, left = (self._planned[1].number, self._planned[1].verdicts) if self._planned else (0, 0)
        return f"{left - len(self._recorded)} more decisions of plan {number}"

    def _collect_snapshot(self, line: int, entry: Entry, queues: list[Queue], workloads: list[Workload]) -> None:
        """Take what was known when the file began."""
        if isinstance(entry, QueueChanged):
            queues.append(entry.queue)
        elif isinstance(entry, WorkloadChanged):
            workloads.append(entry.workload)
        elif isinstance(entry, CheckpointEntry):
            self._state = restore(self._state.policy, queues, workloads, entry.memory, entry.now)
            self._known = None
        else:
            raise DecisionLogError(line, "it comes before all is told that was known when the file began")

    def _add_decision(self, line: int, entry: DecisionEntry) -> None:
        if self._planned is not None:
            planned = self._planned[1]
            self._recorded.append(RecordedDecision(line, planned.number, planned.now, entry.fields))
            self._compare_if_complete()

    def _compare_if_complete(self) -> None:
        """Decide as soon as all is read that was decided."""
        if self._planned is None or len(self._recorded) < self._planned[1].verdicts:
            return
        (line, planned), self._planned = self._planned, None
        if self._number is not None and planned.number != self._number + 1:
            raise DecisionLogError(line, f"plan {planned.number} cannot come after plan {self._number}")
        self._number = planned.number
        plan = self._state.plan(planned.now, most=planned.most)
        result = self.result
        result.plans += 1
        result.decisions += len(self._recorded)
        result.until = planned.now
        self.decisions += [each for each in self._recorded if self._wanted(each.fields)]
        for recorded, replayed in _pairs(self._state, plan, self._recorded, planned):
            if recorded is None or recorded.fields != replayed:
                result.different += 1
                change = (recorded.line, recorded.fields) if recorded else (line, None)
                result.differences.append(Difference(change[0], planned.number, planned.now, change[1], replayed))
                del result.differences[_MAX_DIFFERENCES:]

    def finish(self) -> None:
        """Take the end of the file."""
        if self._planned is not None:
            self.result.remarks.append(f"the last plan is cut off and was left out: {self._missing()} are missing")
        if self._known is not None:
            self.result.remarks.append("what was known when the file began is cut off: nothing was decided in it")


def _apply(state: State, change: StateChange) -> None:
    match change:
        case PolicyChanged(policy=policy):
            state.policy_changed(policy)
        case QueueChanged(queue=queue):
            state.queue_changed(queue)
        case QueueRemoved(name=queue_name):
            state.queue_removed(queue_name)
        case ClusterChanged(cluster=cluster, now=now):
            state.cluster_changed(cluster, now)
        case ClusterRemoved(name=name):
            state.cluster_removed(name)
        case ClusterEstimated(estimate=estimate, now=now):
            state.cluster_estimated(estimate, now)
        case WorkloadChanged(workload=workload, now=now):
            state.workload_changed(workload, now)
        case WorkloadRemoved(uid=uid, now=now):
            state.workload_removed(uid, now)


def _pairs(
    state: State, plan: Plan, recorded: Iterable[RecordedDecision], planned: PlanEntry
) -> Iterator[tuple[RecordedDecision | None, Fields | None]]:
    """Yield what was taken down beside what should have been.

    Who is told when that he waits for another reason hangs on no decision; so
    whoever was told is compared with the reason that there is.
    """
    builder = RecordBuilder(state)
    taken = [record_fields(each, planned.number, planned.revision) for each in builder.plan_records(plan)]
    done = [each for each in recorded if each.fields.get("action") != "Wait"]
    yield from zip_longest(done, taken)
    for each in recorded:
        if each.fields.get("action") == "Wait":
            record = _pending_record(state, builder, each.fields.get("uid"))
            yield each, record_fields(record, planned.number, planned.revision) if record else None


def _pending_record(state: State, builder: RecordBuilder, uid: object) -> DecisionRecord | None:
    """Return why a workload waits, ``None`` where it does not."""
    workload = state.workloads.get(WorkloadUid(uid)) if isinstance(uid, str) else None
    refusal = state.refusal(workload.uid) if workload else None
    return builder.pending_record(workload, refusal, state.position(workload)) if workload and refusal else None
