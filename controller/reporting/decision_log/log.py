"""Records the inputs and decisions of a running controller.

It neither fails nor blocks: if writing fails, entries are dropped and the loss is reported. Later a new file begins
with a snapshot of the state.
"""

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import structlog

from controller.cache.event_handler import EventHandler
from controller.engine.checkpoint import take_checkpoint
from controller.engine.engine import Engine
from controller.engine.plan import Plan, Wait
from controller.engine.policy import Policy
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.estimates import Estimate
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import Workload, WorkloadState, WorkloadUid
from controller.reporting.decision_log.codec import (
    ClusterChanged,
    ClusterEstimated,
    ClusterRemoved,
    Header,
    PlanEntry,
    PolicyChanged,
    QueueChanged,
    QueueRemoved,
    WorkloadChanged,
    WorkloadRemoved,
)
from controller.reporting.decision_log.records import DecisionRecord, RecordBuilder, record_fields
from controller.reporting.decision_log.writer import DecisionLogWriter, Item, NewFile, PlanRecord, RotatedFiles

#: Maximum number of entries that wait for the disk.
_MAX_BACKLOG = 500_000

#: Time after a failure until a new file is tried, in seconds.
_RETRY_SECONDS = 60

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

#: Up to this number, changed pending reasons are logged one by one, beyond it as counts; the decision log has them all.
_MAX_LOGGED_WAITS = 50


@dataclass(frozen=True, slots=True)
class DecisionLogOptions:
    """Path and size of a decision log."""

    path: Path
    max_bytes: int = 64 << 20
    """A new file begins after so many bytes beyond its initial snapshot."""
    max_files: int = 4
    """Maximum number of files."""


class DecisionLog:
    """Records the inputs and decisions of successive states; call ``start`` and ``stop`` once."""

    def __init__(self, options: DecisionLogOptions, identity: str, *, on_lost: Callable[[], None]) -> None:
        self._identity = identity
        self._on_lost = on_lost
        self._path = options.path
        self._writer = DecisionLogWriter(
            RotatedFiles(options.path, options.max_files), limit=options.max_bytes, on_file_change=self._on_file_change
        )
        self._lost_at: float | None = None
        """Monotonic time of the failure since which entries are dropped."""

    def start(self) -> None:
        """Start the writer thread."""
        self._writer.start()

    def stop(self, timeout: float) -> None:
        """Write the remaining entries for at most *timeout* seconds."""
        self._writer.stop(timeout)

    def start_file(self, engine: Engine, now: int) -> None:
        """Start a new file for *engine*, which is empty."""
        self._lost_at = None
        self._writer.put(NewFile(self._header(engine, now, is_whole=True)))

    def _header(self, engine: Engine, now: int, *, is_whole: bool) -> Header:
        return Header(engine.policy, now, version("volcano-global"), self._identity, is_whole=is_whole)

    def recording_handler(self, engine: Engine) -> EventHandler:
        """Return the event handler that records events and passes them to *engine*."""
        return RecordingHandler(engine, self._put)

    def record_plan(self, planned: PlanEntry, records: tuple[DecisionRecord, ...]) -> None:
        """Record a plan and its decisions."""
        self._put(PlanRecord(planned, records))

    def rotate_if_due(self, engine: Engine, now: int) -> None:
        """Start a file with a snapshot of *engine*, if the present one is full or was lost a while ago."""
        if self._lost_at is None:
            is_due = self._writer.is_full
        else:
            is_due = self._lost_at + _RETRY_SECONDS <= time.monotonic() and not self._writer.backlog
        if is_due:
            self._lost_at = None
            self._writer.put(NewFile(self._header(engine, now, is_whole=False), take_checkpoint(engine)))

    def _put(self, item: Item) -> None:
        if self._lost_at is not None:
            return
        if self._writer.backlog > _MAX_BACKLOG:
            self._on_file_change(OSError("the disk is too slow"))
            return
        self._writer.put(item)

    def _on_file_change(self, error: OSError | None) -> None:
        """Handle a new file or an error, in the writer thread, or in the event loop where the disk is too slow."""
        if error is None:
            log.info("decision log file started", file=str(self._path))
            return
        self._lost_at = time.monotonic()
        self._on_lost()
        log.error("decision log interrupted", file=str(self._path), error=str(error), again_in=_RETRY_SECONDS)


class RecordingHandler:
    """Records events of the cache and passes them to a state."""

    def __init__(self, engine: Engine, put: Callable[[Item], None]) -> None:
        self._engine = engine
        self._put = put

    def policy_changed(self, policy: Policy) -> None:
        """Record the policy."""
        self._put(PolicyChanged(policy))
        self._engine.policy_changed(policy)

    def queue_changed(self, queue: Queue) -> None:
        """Record the queue if it differs from the known one."""
        if self._engine.queues.get(queue.name) != queue:
            self._put(QueueChanged(queue))
        self._engine.queue_changed(queue)

    def queue_removed(self, name: QueueName) -> None:
        """Record the deletion."""
        self._put(QueueRemoved(name))
        self._engine.queue_removed(name)

    def cluster_changed(self, cluster: Cluster, now: int) -> None:
        """Record the cluster; an unchanged one may have an effect too."""
        self._put(ClusterChanged(cluster, now))
        self._engine.cluster_changed(cluster, now)

    def cluster_removed(self, name: ClusterName) -> None:
        """Record the deletion."""
        self._put(ClusterRemoved(name))
        self._engine.cluster_removed(name)

    def cluster_estimated(self, estimate: Estimate, now: int) -> None:
        """Record the estimate."""
        self._put(ClusterEstimated(estimate, now))
        self._engine.cluster_estimated(estimate, now)

    def workload_changed(self, workload: Workload, now: int) -> None:
        """Record the workload if it differs from the known one.

        That its admission was observed is recorded only where it is pending again, which may have been refused instead.
        """
        known = self._engine.workloads.get(workload.uid)
        if known != workload:
            if known is not None and known.state is WorkloadState.ADMITTED and workload.state is WorkloadState.PENDING:
                self._put(WorkloadChanged(known, now))
            self._put(WorkloadChanged(workload, now))
        self._engine.workload_changed(workload, now)

    def workload_removed(self, uid: WorkloadUid, now: int, *, is_released: bool = False) -> None:
        """Record the deletion of a known workload, or its release."""
        if uid in self._engine.workloads:
            self._put(WorkloadRemoved(uid, now, is_released))
        self._engine.workload_removed(uid, now, is_released=is_released)


@dataclass(frozen=True, slots=True)
class CycleContext:
    """The inputs of a plan other than the state."""

    now: int
    most: int | None
    """Maximum number of admissions."""
    revision: str
    """Revision of the VolcanoGlobalConfiguration."""


class DecisionRecorder:
    """Logs every decision, and records every plan in the decision log, if there is one."""

    def __init__(self, decision_log: DecisionLog | None = None) -> None:
        self._decision_log = decision_log
        self._number = 0

    def recording_handler(self, engine: Engine) -> EventHandler:
        """Return the event handler for the changes of *engine*."""
        return engine if self._decision_log is None else self._decision_log.recording_handler(engine)

    def start_file(self, engine: Engine, now: int) -> None:
        """Start a file for *engine*, an empty one that replaces the previous engine."""
        if self._decision_log is not None:
            self._decision_log.start_file(engine, now)

    def rotate_if_due(self, engine: Engine, now: int) -> None:
        """Start another file if due."""
        if self._decision_log is not None:
            self._decision_log.rotate_if_due(engine, now)

    def record_plan(self, engine: Engine, plan: Plan, context: CycleContext) -> None:
        """Record *plan*, which *engine* has just made."""
        builder, is_logged = RecordBuilder(engine), len(plan.waits) <= _MAX_LOGGED_WAITS
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
