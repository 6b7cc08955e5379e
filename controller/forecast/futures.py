"""Forecasts start times: runs the engine from its present state on virtual time, in several seeded futures.

Each future draws the remaining run time of every running workload and the run time of every pending one when it starts,
and optionally workloads that arrive. It decides with the same engine as the controller, without write latency. As in
Slurm's `squeue --start` the pending workloads are scheduled ahead of time, but with distributions of run times in the
place of limits: the start times of a workload in the futures are a sample of its start time.

The futures are exchangeable with what will happen where the distributions are right. The time that is not exceeded with
probability p is therefore the order statistic of rank p * (futures + 1), which is unbiased for any number of futures.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor

from controller.engine.checkpoint import restore, take_checkpoint
from controller.engine.engine import Engine
from controller.engine.plan import Admit, Decision, Evict
from controller.engine.state.clusters import ClusterName
from controller.engine.state.pending import WorkloadClass
from controller.engine.state.resources import EMPTY, PODS, add, positive
from controller.engine.state.workloads import Admission, Workload, WorkloadState, WorkloadUid
from controller.simulator.event_queue import Arrival, EventQueue, PodsTerminated, RunCompleted, WakeUp
from controller.simulator.trace import DEFAULT_GRACE, Submission, grace_ms

_HOUR = 3_600_000

#: Pending workloads of one class that are loaded at first; each admission loads the next one.
_LOADED_PER_CLASS = 16

#: The loaded requests of a queue are at least this multiple of its fair share, so that fair shares are the same.
_LOADED_SHARES = 2

#: Workloads listed in `after`, and the least share of the futures in which one must free the capacity.
_MAX_BLOCKERS = 3
_MIN_BLOCKER_SHARE = 0.2

RunTimeOf = Callable[[Workload, int], int]
"""Returns the run time of a workload that has already run for a time, in milliseconds; at least that time."""


@dataclass(frozen=True, slots=True)
class Future:
    """The random part of one future."""

    run_time_of: RunTimeOf
    arrivals: Sequence[tuple[int, Workload]] = ()
    """Pending workloads that arrive, with the times; in the order of the times."""


@dataclass(frozen=True, slots=True)
class ForecastOptions:
    """Limits of a forecast."""

    horizon: int = 24 * _HOUR
    """How far each future runs, in milliseconds."""
    max_cycles: int = 20_000
    """Scheduling cycles after which a future ends, so that its cost is bounded."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """A workload whose end lets another one start."""

    workload: Workload
    cluster: ClusterName | None

    def describe(self, *, is_visible: bool) -> str:
        """Return it as messages name it; only its queue where the reader may not see the workload."""
        if not is_visible:
            return f"a job of queue {self.workload.queue}"
        return f"{self.workload.path} on {self.cluster}" if self.cluster else self.workload.path


@dataclass(frozen=True, slots=True)
class StartForecast:
    """When a pending workload starts, in milliseconds; ``None`` where that is later than was simulated, or never.

    The times are exceeded with a probability of 0.9, 0.5 and 0.1.
    """

    p10: int | None
    p50: int | None
    p90: int | None
    after: tuple[Blocker, ...]
    """The workloads that it waits for, the most frequent first."""
    futures: int
    is_cut: bool = False
    """Whether a future ended before the horizon, after `ForecastOptions.max_cycles`, and before it started."""


@dataclass(frozen=True, slots=True)
class _Start:
    """One start in one future."""

    at: int
    freed_by: tuple[Blocker, ...]


@dataclass(frozen=True, slots=True)
class _Backlog:
    """The pending workloads that are loaded while a future runs, by class."""

    rests: tuple[tuple[Workload, ...], ...]
    """For each class the workloads behind the loaded ones, in their order."""
    class_of: Mapping[WorkloadUid, int]
    """The index of the class of each workload, loaded or not."""


class StartForecaster:
    """Forecasts start times from the present state of an engine; the engine itself is not changed."""

    def __init__(self, engine: Engine, now: int, options: ForecastOptions | None = None) -> None:
        self._now = now
        self._options = options or ForecastOptions()
        self._checkpoint = take_checkpoint(engine)
        self._backlog = _backlog(engine)
        waiting = {workload.uid for rest in self._backlog.rests for workload in rest}
        self._loaded = [workload for workload in self._checkpoint.workloads if workload.uid not in waiting]

    def forecasts(
        self, targets: Collection[WorkloadUid], futures: Iterable[Future]
    ) -> Iterator[dict[WorkloadUid, StartForecast]]:
        """Yield the forecasts of *targets* after each future; each is more precise than the one before."""
        starts: dict[WorkloadUid, list[_Start | None]] = {uid: [] for uid in targets}
        cut: set[WorkloadUid] = set()
        for future in futures:
            simulated, is_cut = self._simulate(future, frozenset(targets))
            for uid, known in starts.items():
                known.append(simulated.get(uid))
            if is_cut:
                cut |= starts.keys() - simulated.keys()
            yield {uid: _summarise(known, is_cut=uid in cut) for uid, known in starts.items()}

    def _simulate(self, future: Future, targets: frozenset[WorkloadUid]) -> tuple[dict[WorkloadUid, _Start], bool]:
        saved = self._checkpoint
        # Every admitted workload of a future starts, and no estimator answers its queries.
        policy = replace(saved.policy, startup_timeout_ms=None, node_estimates=False)
        engine = restore(policy, saved.queues, self._loaded, saved.history, self._now)
        engine.cycle.reason_updates.is_enabled = False
        return _VirtualRun(engine, self._now, future, self._backlog, self._options).run(targets)


class _VirtualRun:
    """Runs one future."""

    def __init__(
        self,
        engine: Engine,
        now: int,
        future: Future,
        backlog: _Backlog,
        options: ForecastOptions,
    ) -> None:
        self._engine = engine
        self._now = now
        self._future = future
        self._options = options
        self._events = EventQueue()
        self._runs: dict[WorkloadUid, int] = {}
        """Number of the present run of each workload that was admitted."""
        self._freed: list[Workload] = []
        """Workloads that freed their charge since the last cycle."""
        self._external_usage = {
            cluster_state.name: cluster_state.external_usage for cluster_state in engine.cluster_usage
        }
        self._rests = [iter(workloads) for workloads in backlog.rests]
        self._class_of = backlog.class_of

    def run(self, targets: frozenset[WorkloadUid]) -> tuple[dict[WorkloadUid, _Start], bool]:
        """Run to the horizon, or until all *targets* have started; return their starts, and whether it was cut."""
        self._begin()
        starts: dict[WorkloadUid, _Start] = {}
        until = self._now + self._options.horizon
        for _ in range(self._options.max_cycles):
            now = self._events.next_time
            if now is None or now > until or len(starts) == len(targets):
                return starts, False
            for decision in self._cycle(now):
                uid = decision.workload.uid
                if isinstance(decision, Admit) and uid in targets and uid not in starts:
                    starts[uid] = _Start(now, self._blockers(decision))
        return starts, True

    def _begin(self) -> None:
        """Schedule the ends of what runs, and the arrivals."""
        for workload in tuple(self._engine.workloads.values()):
            admission = workload.admission
            if admission is None or workload.state is WorkloadState.FINISHED:
                continue
            if workload.is_being_evicted:
                self._events.push(self._now + DEFAULT_GRACE, PodsTerminated(workload.uid))
                continue
            ran = max(self._now - admission.admitted_at, 0) if admission.admitted_at else 0
            self._schedule_end(workload, self._now, ran)
        for at, workload in self._future.arrivals:
            self._events.push(at, Arrival(Submission(workload, 0)))
        self._events.push(self._now, WakeUp())
        self._report_usage(self._external_usage, self._now)

    def _schedule_end(self, workload: Workload, now: int, ran: int) -> None:
        run = self._runs[workload.uid] = self._runs.get(workload.uid, 0) + 1
        ends_at = now + max(self._future.run_time_of(workload, ran) - ran, 0)
        self._events.push(ends_at, RunCompleted(workload.uid, run))

    def _cycle(self, now: int) -> tuple[Decision, ...]:
        """Handle the events due at *now*, and plan one cycle."""
        self._freed.clear()
        for event in self._events.pop_due(now):
            match event:
                case Arrival(submission):
                    self._engine.workload_changed(submission.workload, now)
                case RunCompleted(uid, run):
                    self._complete(uid, run, now=now)
                case PodsTerminated(uid):
                    workload = self._engine.workloads[uid]
                    if workload.is_being_evicted:
                        self._release(workload, workload.stopped(), now)
        plan = self._engine.plan(now)
        for decision in plan.decisions:
            if isinstance(decision, Admit):
                self._schedule_end(decision.workload, now, 0)
                self._load_next(decision.workload, now)
            else:
                self._evict(decision, now)
        if plan.wake_at is not None:
            self._events.push(plan.wake_at, WakeUp())
        admitted = (decision.admission for decision in plan.decisions if isinstance(decision, Admit))
        freed = (workload.admission for workload in self._freed)
        changed = {name for admission in (*admitted, *freed) for name in _clusters(admission)}
        self._report_usage(sorted(changed), now)
        return plan.decisions

    def _report_usage(self, clusters: Iterable[ClusterName], now: int) -> None:
        """Update the resource summaries of *clusters*; their external usage is constant."""
        for name in clusters:
            state = self._engine.cluster_usage.cluster_state(name)
            if state.cluster is not None:
                used = add(self._external_usage.get(name, EMPTY), state.charged)
                self._engine.cluster_changed(replace(state.cluster, used=positive(used)), now)

    def _complete(self, uid: WorkloadUid, run: int, *, now: int) -> None:
        workload = self._engine.workloads.get(uid)
        if workload is not None and workload.state is WorkloadState.ADMITTED and self._runs[uid] == run:
            finished = replace(workload, state=WorkloadState.FINISHED, admission=None, hold=None)
            self._release(workload, finished, now)

    def _release(self, workload: Workload, after: Workload, now: int) -> None:
        """End the run of a workload, which frees its charge."""
        self._freed.append(workload)
        self._engine.workload_changed(after, now)

    def _evict(self, decision: Evict, now: int) -> None:
        """Let the pods of a victim, which the engine has evicted, terminate after their grace period."""
        grace = grace_ms(self._engine.policy, decision.reason)
        self._events.push(now + grace, PodsTerminated(decision.workload.uid))

    def _load_next(self, admitted: Workload, now: int) -> None:
        """Load the next workload of the class of *admitted*, for another cycle at the same time."""
        index = self._class_of.get(admitted.uid)
        following = next(self._rests[index], None) if index is not None else None
        if following is not None:
            self._engine.workload_changed(following, now)
            self._events.push(now, WakeUp())

    def _blockers(self, decision: Admit) -> tuple[Blocker, ...]:
        """Return the workloads whose end let it start: those that ended just before, on its clusters if any did."""
        own = {assignment.name for assignment in decision.clusters}
        freed = [Blocker(workload, min(_clusters(workload.admission), default=None)) for workload in self._freed]
        on_same = [
            Blocker(workload, min(shared))
            for workload in self._freed
            if (shared := own & _clusters(workload.admission))
        ]
        return tuple(on_same or freed)


def _clusters(admission: Admission | None) -> set[ClusterName]:
    return admission.clusters if admission is not None else set()


def _backlog(engine: Engine) -> _Backlog:
    """Return the pending workloads that need not be loaded at first.

    Workloads of one class are admitted in their order, so those far behind decide nothing. Enough of each queue are
    loaded that its requests exceed its fair share, as they do with all of them.
    """
    shares, rests, class_of = engine.queue_shares, list[tuple[Workload, ...]](), dict[WorkloadUid, int]()
    for queue, classes in engine.pending.queues.items():
        plain = [workload_class for workload_class in classes if workload_class.competes_alone]
        due = shares.fair_shares.get(queue, {}) if shares is not None else {}
        count = _loaded_count(plain, {name: _LOADED_SHARES * floor(amount) for name, amount in due.items()})
        for workload_class in plain:
            if len(workload_class.workloads) > count:
                class_of.update(dict.fromkeys((workload.uid for workload in workload_class), len(rests)))
                rests.append(tuple(workload_class.workloads[count:]))
    return _Backlog(tuple(rests), class_of)


def _loaded_count(classes: Sequence[WorkloadClass], amounts: Mapping[str, int]) -> int:
    """Return how many workloads of each class to load, so that they request *amounts* where all of them do."""
    count, largest = _LOADED_PER_CLASS, max((len(workload_class.workloads) for workload_class in classes), default=0)
    names = {name for workload_class in classes for name in workload_class.charge if name in amounts and name != PODS}
    while count < largest:
        loaded = {
            name: sum(
                min(count, len(workload_class.workloads)) * workload_class.charge.get(name, 0)
                for workload_class in classes
            )
            for name in names
        }
        if all(loaded[name] >= amounts[name] for name in names):
            return count
        count *= 2
    return largest


def _summarise(starts: Sequence[_Start | None], *, is_cut: bool) -> StartForecast:
    times = sorted(start.at for start in starts if start is not None)
    blockers = Counter(
        (blocker.workload.uid, blocker.cluster) for start in starts if start is not None for blocker in start.freed_by
    )
    known = {
        (blocker.workload.uid, blocker.cluster): blocker
        for start in starts
        if start is not None
        for blocker in start.freed_by
    }
    often = [
        key
        for key, count in sorted(blockers.items(), key=lambda item: (-item[1], item[0][0]))
        if count >= _MIN_BLOCKER_SHARE * len(starts)
    ]
    return StartForecast(
        p10=order_statistic(times, len(starts), 0.1),
        p50=order_statistic(times, len(starts), 0.5),
        p90=order_statistic(times, len(starts), 0.9),
        after=tuple(known[key] for key in often[:_MAX_BLOCKERS]),
        futures=len(starts),
        is_cut=is_cut,
    )


def order_statistic(times: Sequence[int], count: int, probability: float) -> int | None:
    """Return the time of rank probability * (count + 1) of *count* times; ``None`` where it is not among the known.

    *times* are sorted, and those after the horizon are missing at the end.
    """
    rank = min(max(probability * (count + 1), 1), count)
    below = floor(rank)
    above = below + (rank > below)
    if above > len(times):
        return None
    return round(times[below - 1] + (times[above - 1] - times[below - 1]) * (rank - below))
