"""Runs the engine with the jobs of a trace, event by event on virtual time.

At each time with events, all events are passed to the engine's state in the order in
which they were queued, and one scheduling cycle is planned. A decision takes effect when its
write is complete; the run time of an admitted job begins then.

An evicted job stops after its grace period, loses its progress, and is pending again with
its original age. A job whose run would end during the grace period does not finish.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from controller.engine.engine import Engine
from controller.engine.plan import Admit, Decision, Evict
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import ClusterName
from controller.engine.state.workloads import Admission, Workload, WorkloadState, WorkloadUid
from controller.simulator.clusters import SimulatedClusters
from controller.simulator.event_queue import (
    Arrival,
    EventQueue,
    PodsTerminated,
    QueuedEvent,
    RunCompleted,
    StatusUpdate,
    WakeUp,
    WriteCompleted,
)
from controller.simulator.jobs import JobAction, LogEntry, SimulatedJob, SimulatedJobs
from controller.simulator.metrics import AdvanceReservationCosts, IdleCapacity, ShareMetrics
from controller.simulator.trace import DEFAULT_GRACE, SimulationSettings, Submission, Trace, grace_ms

_SECOND = 1000


class WriteLatency:
    """Computes when writes complete; with *per_second* 0 at once."""

    def __init__(self, per_second: int) -> None:
        self._duration = Fraction(_SECOND, per_second) if per_second else Fraction(0)
        self._free_at = Fraction(0)

    def done_at(self, now: int) -> int:
        """Return the completion time of a write requested at *now*, after all earlier writes."""
        self._free_at = max(self._free_at, Fraction(now)) + self._duration
        return ceil(self._free_at)


ProgressCallback = Callable[[int, int], None]
"""Called with the number of finished jobs and the number of all jobs."""
Observer = Callable[[ShareMetrics, int, int], None]
"""Called after each cycle with the share metrics, the number of pending jobs and the time."""

_MAX_IDLE_WAKE_UPS = 100
"""Number of wake-ups without a decision after which a simulation without other events ends.

The begins and ends of advance reservations are still simulated.
"""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Log, metrics and final state of a simulation."""

    trace: Trace
    log: tuple[LogEntry, ...]
    jobs: SimulatedJobs
    share_metrics: ShareMetrics
    idle: IdleCapacity
    reservation_costs: AdvanceReservationCosts
    engine: Engine
    cycles: int
    ended_at: int
    """Time of the last relevant event, or the time limit."""


class Simulation:
    """Simulates one trace."""

    def __init__(
        self,
        trace: Trace,
        settings: SimulationSettings | None = None,
        *,
        on_progress: ProgressCallback | None = None,
        observe: Observer | None = None,
    ) -> None:
        self._trace = trace
        self._settings = settings or SimulationSettings()
        self._on_progress = on_progress
        self._observe = observe
        # In a simulation, every admitted job starts.
        self._engine = Engine(replace(trace.policy, startup_timeout_ms=None))
        self._events = EventQueue()
        self._write_latency = WriteLatency(self._settings.writes_per_second)
        self._clusters = SimulatedClusters(trace.clusters, self._settings.status_period)
        self._jobs = SimulatedJobs()
        self._share_metrics = ShareMetrics()
        self._idle_capacity = IdleCapacity()
        self._reservation_costs = AdvanceReservationCosts(trace.start)
        self._log: list[LogEntry] = []
        self._cycles = 0
        self._idle_wake_ups = 0
        self._wakes: set[int] = set()
        self._ended_at = 0

    @property
    def engine(self) -> Engine:
        """Return the engine, for observers; only the simulation changes it."""
        return self._engine

    def run(self) -> SimulationResult:
        """Run the simulation to its end and return the result."""
        self._initialize()
        until = self._settings.until
        while (now := self._events.next_time) is not None and not self._is_over():
            if until is not None and now > until:
                self._ended_at = until
                break
            self._run_cycle(now)
        self._share_metrics.close(self._ended_at)
        self._idle_capacity.close(self._ended_at)
        self._reservation_costs.close(self._ended_at)
        return SimulationResult(
            self._trace,
            log=tuple(self._log),
            jobs=self._jobs,
            share_metrics=self._share_metrics,
            idle=self._idle_capacity,
            reservation_costs=self._reservation_costs,
            engine=self._engine,
            cycles=self._cycles,
            ended_at=self._ended_at,
        )

    # -- start and end ---------------------------------------------------

    def _initialize(self) -> None:
        """Add the initial objects to the state; workloads precede the clusters that may report their usage."""
        for submission in self._trace.submissions:
            if submission.workload.state is WorkloadState.PENDING and submission.workload.admission is None:
                self._events.push(submission.at, Arrival(submission))
            elif submission.workload.state is not WorkloadState.FINISHED:
                self._resume(submission)
        for queue in self._trace.queues:
            self._engine.queue_changed(queue)
        for cluster in self._trace.clusters:
            self._engine.cluster_changed(cluster, self._trace.start)
        self._events.push(0, WakeUp())

    def _resume(self, submission: Submission) -> None:
        """Continue a job that is placed at the start: it is running or being evicted."""
        workload, admission = submission.workload, submission.workload.admission
        if admission is None:
            return
        self._update(self._with_run_time(submission, admission.admitted_at - self._trace.start), 0)
        job = self._jobs.begin(submission, waiting_since=None)
        job.start(admission, 0)
        if admission.reported:
            self._clusters.add_existing(admission.cluster_charges)
        else:
            self._schedule_status(self._clusters.start(admission.cluster_charges), 0)
        if workload.state is WorkloadState.PENDING:
            job.evicting = True
            self._events.push(DEFAULT_GRACE, PodsTerminated(workload.uid))
        else:
            self._events.push(submission.runtime - submission.ran, RunCompleted(workload.uid, job.runs))

    def _is_over(self) -> bool:
        """Return whether no event remains that can change the result."""
        everything_is_done = self._jobs.finished == len(self._jobs)
        return (
            self._events.is_idle
            and (everything_is_done or (self._idle_wake_ups > _MAX_IDLE_WAKE_UPS and not self._wakes))
            and self._cycles > 0
        )

    # -- one cycle -------------------------------------------------------

    def _run_cycle(self, now: int) -> None:
        """Handle the events due at *now*, plan one cycle and write its decisions."""
        was_idle = self._events.is_idle
        has_changed = self._engine.is_due(self._trace.start + now) or self._cycles == 0
        for event in self._events.pop_due(now):
            has_changed |= not isinstance(event, WakeUp)
            self._handle(event, now)
        plan = self._engine.plan(self._trace.start + now)
        self._cycles += 1
        for decision in plan.decisions:
            self._write(decision, now)
        for wait in plan.waits:
            self._log.append(LogEntry(now, JobAction.WAIT, wait.workload, cause=wait.refusal))
            self._jobs[wait.workload.uid].set_reason(wait.refusal, now)
        self._idle_wake_ups = self._idle_wake_ups + 1 if was_idle and not plan.decisions else 0
        is_repeating = self._idle_wake_ups > _MAX_IDLE_WAKE_UPS
        self._wake_at(self._next_reservation_change(now) if is_repeating else plan.wake_at)
        if not was_idle or plan.decisions or self._cycles == 1:
            self._measure(now, has_changed=has_changed)

    def _measure(self, now: int, *, has_changed: bool) -> None:
        self._ended_at = now
        if has_changed and self._engine.queue_shares is not None:
            self._share_metrics.read(self._engine.queue_shares, now)
            self._idle_capacity.read(self._engine, now)
            self._reservation_costs.read(self._engine, now)
        if self._observe is not None:
            self._observe(self._share_metrics, self._jobs.waiting, now)
        if self._on_progress is not None:
            self._on_progress(self._jobs.finished, len(self._trace.submissions))

    def _handle(self, event: QueuedEvent, now: int) -> None:
        match event:
            case Arrival(submission):
                self._submit(submission, now)
            case WriteCompleted(decision):
                self._apply(decision, now)
            case RunCompleted(uid, run):
                self._complete(self._jobs[uid], run, now=now)
            case PodsTerminated(uid):
                self._terminate(self._jobs[uid], now)
            case StatusUpdate(name):
                cluster = self._clusters.update(name)
                if cluster is not None:
                    self._engine.cluster_changed(cluster, self._trace.start + now)
            case WakeUp():
                self._wakes.discard(now)

    def _wake_at(self, time: int | None) -> None:
        """Schedule a cycle at the engine's *time*, unless one is scheduled already."""
        at = None if time is None else time - self._trace.start
        if at is not None and at not in self._wakes:
            self._wakes.add(at)
            self._events.push(at, WakeUp())

    def _next_reservation_change(self, now: int) -> int | None:
        """Return the engine's time at which the next advance reservation begins or ends, ``None`` if none does."""
        reservations = self._trace.policy.advance_reservations
        times = (at for reservation in reservations for at in (reservation.since, reservation.until))
        return min((at for at in times if at > self._trace.start + now), default=None)

    # -- job transitions -------------------------------------------------

    def _submit(self, submission: Submission, now: int) -> None:
        self._jobs.begin(submission, waiting_since=now)
        self._update(self._with_run_time(submission, now), now)
        self._log.append(LogEntry(now, JobAction.SUBMIT, submission.workload))

    def _write(self, decision: Decision, now: int) -> None:
        """Write a decision that the engine has assumed."""
        if isinstance(decision, Evict):
            self._mark_evicting(decision.workload.uid, now)
        else:
            self._jobs[decision.workload.uid].set_reason(None, now)
        done_at = self._write_latency.done_at(now)
        if done_at == now:
            self._apply(decision, now)
        else:
            self._events.push(done_at, WriteCompleted(decision))

    def _apply(self, decision: Decision, now: int) -> None:
        job = self._jobs[decision.workload.uid]
        if job.finished_at is not None:
            return  # a finished job cannot be evicted
        if isinstance(decision, Admit):
            self._log.append(LogEntry(now, JobAction.ADMIT, job.workload, decision.clusters))
            self._start(job, decision.admission, now)
        else:
            self._log.append(LogEntry(now, JobAction.EVICT, job.workload, cause=decision.reason))
            job.evictions += 1
            job.evicting = True
            self._events.push(now + grace_ms(self._trace.policy, decision.reason), PodsTerminated(job.workload.uid))

    def _start(self, job: SimulatedJob, admission: Admission, now: int) -> None:
        """Start a job; its status is reported at once, its usage with the cluster's next status update."""
        uid = job.workload.uid
        self._jobs.start(job, admission, now)
        self._events.push(now + job.submission.runtime, RunCompleted(uid, job.runs))
        self._schedule_status(self._clusters.start(admission.cluster_charges), now)
        known = self._engine.workloads[uid]
        if known.state is WorkloadState.ADMITTED and known.admission is not None:
            known = replace(known, admission=replace(known.admission, reported=True))
            if known.run_time_ms is not None:
                # Its run begins when the write of its admission is complete.
                run_time = self._trace.start + now - admission.admitted_at + job.submission.runtime
                known = known.expecting(run_time)
            self._update(known, now)

    def _complete(self, job: SimulatedJob, run: int, *, now: int) -> None:
        if job.runs != run or job.running_since is None or job.evicting:
            return  # it was evicted meanwhile
        self._stop_pods(job, now)
        self._jobs.finish(job, now)
        known = self._engine.workloads[job.workload.uid]
        self._update(replace(known, state=WorkloadState.FINISHED, admission=None, hold=None), now)
        self._log.append(LogEntry(now, JobAction.FINISH, job.workload))

    def _mark_evicting(self, uid: WorkloadUid, now: int) -> None:
        """Mark a victim as being evicted in the state, unless the engine has done so itself."""
        known = self._engine.workloads[uid]
        if known.state is WorkloadState.ADMITTED and known.admission is not None:
            cluster = next((charge.cluster for charge in known.admission.cluster_charges), None)
            hold = Refusal(Reason.PREEMPTION_IN_PROGRESS, cluster=cluster)
            self._update(replace(known, state=WorkloadState.PENDING, hold=hold), now)

    def _terminate(self, job: SimulatedJob, now: int) -> None:
        """Make a victim pending again with its original age after its pods have terminated."""
        self._stop_pods(job, now)
        self._jobs.wait_again(job, now)
        known = self._engine.workloads[job.workload.uid]
        self._update(known.stopped(), now)

    def _stop_pods(self, job: SimulatedJob, now: int) -> None:
        if job.running_since is not None and job.admission is not None:
            self._schedule_status(self._clusters.stop(job.admission.cluster_charges), now)

    # -- clusters and state ----------------------------------------------

    def _with_run_time(self, submission: Submission, since: int) -> Workload:
        """Return the submitted workload with its run time, counted from *since*."""
        if not self._settings.knows_run_times:
            return submission.workload
        return submission.workload.expecting(max(submission.at - since, 0) + submission.runtime - submission.ran)

    def _update(self, workload: Workload, now: int) -> None:
        self._engine.workload_changed(workload, self._trace.start + now)

    def _schedule_status(self, clusters: Iterable[ClusterName], now: int) -> None:
        for name in clusters:
            self._events.push(self._clusters.next_update(now), StatusUpdate(name))
