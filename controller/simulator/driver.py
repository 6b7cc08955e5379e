"""The driver: plays a trace against the engine, instant by instant.

At each instant at which something happens, all of it is told to the World in
the order in which it was put on the agenda (jobs of the trace first, then by
what caused it), and one cycle decides. What the cycle decides takes effect
when its write is done: only then does a job's run time begin.

An evicted job stops when its grace is over, loses what it has done, and waits
again with the age it had; what would have finished during the grace does not.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from controller.engine.clusters import ClusterName
from controller.engine.plan import Admit, Decision, Evict
from controller.engine.reasons import EvictionReason, Reason, Refusal
from controller.engine.state import State
from controller.engine.workloads import Admission, Workload, WorkloadState, WorkloadUid
from controller.simulator.agenda import (
    Agenda,
    Arrival,
    Completion,
    Departure,
    Occurrence,
    Status,
    Wake,
    Written,
)
from controller.simulator.gauge import Gauge
from controller.simulator.idle import Idle
from controller.simulator.journal import Action, Entry
from controller.simulator.lives import Life, Lives
from controller.simulator.members import Members
from controller.simulator.series import Series
from controller.simulator.trace import DEFAULT_GRACE, Submission, Tempo, Trace
from controller.simulator.writer import Writer

Watch = Callable[[int, int], None]
"""Told how many of the trace's jobs have finished, of how many."""

_PATIENCE = 100
"""How many wake-ups that change nothing are waited for once nothing else is to come."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that is known after a simulation."""

    trace: Trace
    journal: tuple[Entry, ...]
    lives: Lives
    gauge: Gauge
    idle: Idle
    state: State
    cycles: int
    ended_at: int
    """When the last thing of interest happened, or where one stopped looking."""


class Simulation:
    """One run of a trace; *series* takes notes for a drawing."""

    def __init__(
        self, trace: Trace, tempo: Tempo | None = None, *, watch: Watch | None = None, series: Series | None = None
    ) -> None:
        self._trace = trace
        self._tempo = tempo or Tempo()
        self._watch = watch
        self._series = series
        # What is admitted in a simulation starts.
        self._world = State(replace(trace.policy, startup_timeout_ms=None))
        self._agenda = Agenda()
        self._writer = Writer(self._tempo.writes_per_second)
        self._members = Members(trace.clusters, self._tempo.status_period)
        self._lives = Lives()
        self._gauge = Gauge(series)
        self._idle = Idle()
        self._journal: list[Entry] = []
        self._cycles = 0
        self._in_vain = 0
        self._wakes: set[int] = set()
        self._ended_at = 0

    def run(self) -> Outcome:
        """Play the trace to its end and return what became of it."""
        self._open()
        until = self._tempo.until
        while (now := self._agenda.next_time) is not None and not self._is_over():
            if until is not None and now > until:
                self._ended_at = until
                break
            self._step(now)
        self._gauge.close(self._ended_at)
        self._idle.close(self._ended_at)
        return Outcome(
            self._trace,
            journal=tuple(self._journal),
            lives=self._lives,
            gauge=self._gauge,
            idle=self._idle,
            state=self._world,
            cycles=self._cycles,
            ended_at=self._ended_at,
        )

    # -- the beginning and the end --------------------------------------

    def _open(self) -> None:
        """Tell the World what there is at the start, charges before the summaries that may show them."""
        for submission in self._trace.submissions:
            if submission.workload.state is WorkloadState.PENDING and submission.workload.admission is None:
                self._agenda.put(submission.at, Arrival(submission))
            elif submission.workload.state is not WorkloadState.FINISHED:
                self._resume(submission)
        for queue in self._trace.queues:
            self._world.queue_changed(queue)
        for cluster in self._trace.clusters:
            self._world.cluster_changed(cluster, self._trace.start)
        self._agenda.put(0, Wake())

    def _resume(self, submission: Submission) -> None:
        """Go on with a job that holds clusters at the start: it runs, or it leaves after an eviction."""
        workload, admission = submission.workload, submission.workload.admission
        if admission is None:
            return
        self._tell(workload, 0)
        life = self._lives.begin(submission, waiting_since=None)
        life.start(admission, 0)
        if admission.reported:
            self._members.counts_already(admission.cluster_charges)
        else:
            self._look_later(self._members.start(admission.cluster_charges), 0)
        if workload.state is WorkloadState.PENDING:
            life.leaving = True
            self._agenda.put(DEFAULT_GRACE, Departure(workload.uid))
        else:
            self._agenda.put(submission.runtime, Completion(workload.uid, life.runs))

    def _is_over(self) -> bool:
        """Say whether nothing can happen any more that is worth waiting for."""
        everything_is_done = self._lives.finished == len(self._lives)
        return self._agenda.is_idle and (everything_is_done or self._in_vain > _PATIENCE) and self._cycles > 0

    # -- one instant ----------------------------------------------------

    def _step(self, now: int) -> None:
        """Let all happen that is due at *now*, decide once, and carry out what was decided."""
        was_idle = self._agenda.is_idle
        for occurrence in self._agenda.take(now):
            self._happen(occurrence, now)
        plan = self._world.plan(self._trace.start + now)
        self._cycles += 1
        for decision in plan.decisions:
            self._carry_out(decision, now)
        for wait in plan.waits:
            self._journal.append(Entry(now, Action.WAIT, wait.workload, cause=wait.refusal))
            self._lives[wait.workload.uid].explain(wait.refusal, now)
        self._wake_at(plan.wake_at)
        self._in_vain = self._in_vain + 1 if was_idle and not plan.decisions else 0
        if not was_idle or plan.decisions or self._cycles == 1:
            self._measure(now)

    def _measure(self, now: int) -> None:
        self._ended_at = now
        if self._world.queue_shares is not None:
            self._gauge.read(self._world.queue_shares, now)
            self._idle.read(self._world, now)
        if self._series is not None:
            self._series.waits(self._lives.waiting, now)
        if self._watch is not None:
            self._watch(self._lives.finished, len(self._trace.submissions))

    def _happen(self, occurrence: Occurrence, now: int) -> None:
        match occurrence:
            case Arrival(submission):
                self._submit(submission, now)
            case Written(decision):
                self._take_effect(decision, now)
            case Completion(uid, run):
                self._complete(self._lives[uid], run, now=now)
            case Departure(uid):
                self._depart(self._lives[uid], now)
            case Status(name):
                cluster = self._members.look(name)
                if cluster is not None:
                    self._world.cluster_changed(cluster, self._trace.start + now)
            case Wake():
                self._wakes.discard(now)

    def _wake_at(self, time: int | None) -> None:
        """Look again at *time*, the engine's, unless that is arranged already."""
        at = None if time is None else time - self._trace.start
        if at is not None and at not in self._wakes:
            self._wakes.add(at)
            self._agenda.put(at, Wake())

    # -- what happens to a job ------------------------------------------

    def _submit(self, submission: Submission, now: int) -> None:
        self._lives.begin(submission, waiting_since=now)
        self._tell(submission.workload, now)
        self._journal.append(Entry(now, Action.SUBMIT, submission.workload))

    def _carry_out(self, decision: Decision, now: int) -> None:
        """Write a decision that the World has booked."""
        if isinstance(decision, Evict):
            self._mark_leaving(decision.workload.uid, now)
        else:
            self._lives[decision.workload.uid].explain(None, now)
        done_at = self._writer.done_at(now)
        if done_at == now:
            self._take_effect(decision, now)
        else:
            self._agenda.put(done_at, Written(decision))

    def _take_effect(self, decision: Decision, now: int) -> None:
        life = self._lives[decision.workload.uid]
        if life.finished_at is not None:
            return  # a run that has come to its end cannot be taken back
        if isinstance(decision, Admit):
            self._journal.append(Entry(now, Action.ADMIT, life.workload, decision.clusters))
            self._start(life, decision.admission, now)
        else:
            self._journal.append(Entry(now, Action.EVICT, life.workload, cause=decision.reason))
            life.evictions += 1
            life.leaving = True
            self._agenda.put(now + self._grace(decision.reason), Departure(life.workload.uid))

    def _start(self, life: Life, admission: Admission, now: int) -> None:
        """Let a job's pods run, which its cluster reports at once and its cluster's summary later."""
        uid = life.workload.uid
        self._lives.start(life, admission, now)
        self._agenda.put(now + life.submission.runtime, Completion(uid, life.runs))
        self._look_later(self._members.start(admission.cluster_charges), now)
        known = self._world.workloads[uid]
        if known.state is WorkloadState.ADMITTED and known.admission is not None:
            self._tell(replace(known, admission=replace(known.admission, reported=True)), now)

    def _complete(self, life: Life, run: int, *, now: int) -> None:
        if life.runs != run or life.running_since is None or life.leaving:
            return  # it was evicted in the meantime
        self._stop_pods(life, now)
        self._lives.finish(life, now)
        known = self._world.workloads[life.workload.uid]
        self._tell(replace(known, state=WorkloadState.FINISHED, admission=None, hold=None), now)
        self._journal.append(Entry(now, Action.FINISH, life.workload))

    def _mark_leaving(self, uid: WorkloadUid, now: int) -> None:
        """Tell the World that a victim leaves; one that has done so itself hears nothing new."""
        known = self._world.workloads[uid]
        if known.state is WorkloadState.ADMITTED and known.admission is not None:
            place = next((booking.cluster for booking in known.admission.cluster_charges), None)
            hold = Refusal(Reason.PREEMPTION_IN_PROGRESS, cluster=place)
            self._tell(replace(known, state=WorkloadState.PENDING, hold=hold), now)

    def _depart(self, life: Life, now: int) -> None:
        """Tell the World that a victim's clusters are empty: it waits again, as old as it was."""
        self._stop_pods(life, now)
        self._lives.wait_again(life, now)
        known = self._world.workloads[life.workload.uid]
        self._tell(replace(known, state=WorkloadState.PENDING, admission=None, hold=None), now)

    def _stop_pods(self, life: Life, now: int) -> None:
        if life.running_since is not None and life.admission is not None:
            self._look_later(self._members.stop(life.admission.cluster_charges), now)

    # -- what surrounds it ----------------------------------------------

    def _tell(self, workload: Workload, now: int) -> None:
        self._world.workload_changed(workload, self._trace.start + now)

    def _look_later(self, clusters: Iterable[ClusterName], now: int) -> None:
        for name in clusters:
            self._agenda.put(self._members.next_look(now), Status(name))

    def _grace(self, reason: EvictionReason) -> int:
        return self._trace.grace.get(reason, DEFAULT_GRACE)
