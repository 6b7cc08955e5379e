"""Looks when something has changed, decides, and hands the decisions on.

One event wakes it and carries no data: what is true is asked of the store.
What is decided, and how it is written, is not its business.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from traceback import walk_tb
from typing import Any, NoReturn, Protocol

import structlog

from controller.affinities import first_unobserved_term
from controller.backoff import Backoff
from controller.cache.assumed_writes import AssumedEviction, AssumedOutcome, AssumedRecordUpdate, AssumedRepair
from controller.cache.objects import CachedBinding
from controller.cache.store import Store
from controller.clock import Clock, wall_clock
from controller.decision_log.recorder import CycleContext, DecisionRecorder
from controller.engine.clusters import ClusterName
from controller.engine.estimates import Query
from controller.engine.pending import WorkloadClass
from controller.engine.plan import Admit, Decision, Evict, Plan, RecordUpdate, Wait
from controller.engine.reasons import Reason, Refusal
from controller.engine.state import State
from controller.engine.steps import Steps, advance
from controller.engine.workloads import Workload, WorkloadUid
from controller.metrics import Metrics
from controller.writes import (
    Write,
    affinity_term_write,
    confirmation_write,
    decision_write,
    nomination_write,
    repair_write,
    requeue_writes,
)

#: So many admissions are decided ahead of the writes: what is sent is fresh, and the event loop is never held up long.
_MAX_UNSENT_WRITES = 256
#: How many times a workload is evaluated on a cluster in one go: a few hundredths of a second.
_STEPS_PER_SLICE = 2000
#: After so many goes a plan is made, however much is left to judge.
_MAX_PREPARATION_SLICES = 500
#: So often it is seen which caches are waited for, in seconds.
_SYNC_POLL_SECONDS = 1
#: Clocks jump, so a time of day is never waited for longer than this, in seconds.
_MAX_WAIT_SECONDS = 60
_MIN_WAIT_SECONDS = 0.02
#: A workload that is set aside is tried again after this time, in milliseconds.
_FAILED_WORKLOAD_RETRY_MS = 60_000
#: Between two looks news are gathered for as long as the last one took, within these bounds, in seconds.
_MIN_BATCHING_SECONDS = 0.005
_MAX_BATCHING_SECONDS = 0.05

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class SyncedCache(Protocol):
    """A cache that is, or is not yet, what the API server once had."""

    @property
    def synced(self) -> asyncio.Event:
        """Set while it is."""


class DecisionSink(Protocol):
    """Who carries decisions out; the actuator is one."""

    @property
    def may_write(self) -> bool:
        """Say whether it is our turn; who stands by decides nothing."""

    @property
    def backlog(self) -> int:
        """Return how many writes are not begun yet."""

    def submit(self, write: Write, /) -> None:
        """See *write* through."""

    def next_write_at(self, uid: WorkloadUid, /) -> int | None:
        """Return from when on a new write for *uid* makes sense; ``None`` while one is under way."""


class AdmissionLoop:
    """Feeds the World from the store and hands what it decides to the actuator."""

    def __init__(
        self,
        store: Store,
        actuator: DecisionSink,
        caches: Mapping[str, SyncedCache],
        *,
        metrics: Metrics,
        clock: Clock = wall_clock,
    ) -> None:
        self.state = State()
        self.last_error: str | None = None
        """Why the last cycle failed."""
        self.on_waits: Callable[[tuple[Wait, ...]], None] = _ignore_waits
        """Hears for what reasons workloads wait now; it is not to wait itself."""
        self.on_queries: Callable[[tuple[Query, ...]], None] = _ignore_queries
        """Hears what the clusters' estimators are to be asked."""
        self.decision_recorder = DecisionRecorder()
        """Takes every decision down."""
        self._store = store
        self._actuator = actuator
        self._caches = caches
        self._metrics = metrics
        self._clock = clock
        self._backoff = Backoff(initial=0.5, maximum=30)
        self._slice_seconds = 0.0
        self._preparation_slices = 0
        """How many cycles have judged workloads since the last plan."""
        self._plan_in_progress: tuple[Steps[Plan], CycleContext] | None = None
        """The plan that is being made over several goes."""
        self._plan_seconds = 0.0
        """How long the goes of that plan have taken, in seconds."""
        self._plan_slices = 0
        """How many they are."""
        self._wake = asyncio.Event()
        store.on_change = self._wake.set
        store.on_error = partial(self._report, "assess")

    def wake(self) -> None:
        """Look again: something has changed that the store does not tell."""
        self._wake.set()

    async def run(self) -> NoReturn:
        """Decide whenever something has changed, until cancelled."""
        while True:
            await self._until_synced()
            self._wake.clear()
            try:
                wake_at = self._cycle()
            except Exception as error:  # noqa: BLE001 -- the one outer guard: what fails here must not end admission for ever
                await self._recover(error)
            else:
                self.last_error = None
                self._backoff.reset()
                await self._wait(wake_at)

    async def _until_synced(self) -> None:
        """Wait until every list has been applied."""
        while missing := [cache for cache in self._caches.values() if not cache.synced.is_set()]:
            # A cache that nobody needs any more is never in step again: it is gone from among them at the next look.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SYNC_POLL_SECONDS):
                    await missing[0].synced.wait()

    def _cycle(self) -> int | None:
        """Look once, decide, hand on; return when to look again unasked, in milliseconds."""
        began, now = time.monotonic(), self._clock()
        if self._plan_in_progress is not None:
            return self._advance_plan(now, began)
        self._store.sync_to(self.decision_recorder.recording_handler(self.state), now)
        self.decision_recorder.rotate_if_due(self.state, now)
        if not self._actuator.may_write:
            return None
        if not self._prepare():
            self._slice_seconds = time.monotonic() - began
            return now
        batch_size = _MAX_UNSENT_WRITES - self._actuator.backlog
        if batch_size < _MAX_UNSENT_WRITES // 2:
            return self._next_wake(now, now)
        self._plan_in_progress = (
            self.state.plan_in_steps(now, most=batch_size),
            CycleContext(now, batch_size, self._store.revision),
        )
        self._plan_seconds, self._plan_slices = 0.0, 0
        return self._advance_plan(now, began)

    def _prepare(self) -> bool:
        """Judge waiting workloads for a bounded time; say whether the next plan can be made.

        Others take their turn on the event loop before it goes on. What comes in meanwhile is judged, too, but a plan
        is not put off for ever.
        """
        if self._preparation_slices < _MAX_PREPARATION_SLICES and not self.state.prepare(_STEPS_PER_SLICE):
            self._preparation_slices += 1
            return False
        self._preparation_slices = 0
        return True

    def _advance_plan(self, now: int, began: float) -> int | None:
        """Go on with the plan for a bounded number of steps; return when there is more to do.

        The world is told nothing before the plan is made, so that the goes together decide as one would.
        """
        if self._plan_in_progress is None:
            raise AssertionError("no plan is being made")
        work, context = self._plan_in_progress
        made = advance(work, _STEPS_PER_SLICE)
        self._slice_seconds = time.monotonic() - began
        self._plan_seconds += self._slice_seconds
        self._plan_slices += 1
        if made is None:
            return now
        self._plan_in_progress = None
        self._metrics.count_cycle(self._plan_seconds)
        planned_at = self._apply_plan(made[0], context, now)
        # What came in since the plan was begun has not been told to the world.
        return self._next_wake(planned_at if self._plan_slices == 1 else now, now)

    def _next_wake(self, planned_at: int | None, now: int) -> int | None:
        """Return when to look again: for the plan, for what is to be mended, or for what the store knows."""
        wake_ats = (planned_at, self._repair(now), self._store.next_retry_at)
        return min((at for at in wake_ats if at is not None), default=None)

    def _apply_plan(self, plan: Plan, context: CycleContext, now: int) -> int | None:
        """Hand on what *plan* decides; return when there is more to decide."""
        self.decision_recorder.record_plan(self.state, plan, context)
        for error in self.state.take_failures():
            self._report("decide", None, error)
        stale = self._stale(plan)
        self._store.mark_changed(stale)
        self._write_reservations([note for note in plan.record_updates if note.workload.uid not in stale], now)
        self._requeue([each for each in plan.reschedules if each.uid not in stale], now)
        self._submit_decisions([each for each in plan.decisions if each.workload.uid not in stale], now)
        self.on_waits(plan.waits)
        self.on_queries(plan.queries)
        return now if plan.is_cut else plan.wake_at

    def _stale(self, plan: Plan) -> set[WorkloadUid]:
        """Return the workloads of *plan* that have changed since its first go, with all that depends on them.

        They are decided anew: the parts of a HyperJob together, and victims with the workload that needs their room.
        """
        if self._plan_slices == 1:
            return set()
        stale = {
            each.workload.uid
            for each in (*plan.decisions, *plan.record_updates)
            if self._store.has_changed(each.workload.uid)
        }
        stale |= {each.uid for each in plan.reschedules if self._store.has_changed(each.uid)}
        if not stale:
            return stale
        admitted = [each for each in plan.decisions if isinstance(each, Admit) and each.plan_id]
        plans = {each.plan_id for each in admitted if each.workload.uid in stale}
        stale |= {each.workload.uid for each in admitted if each.plan_id in plans}
        evicted = [each for each in plan.decisions if isinstance(each, Evict)]
        return stale | {each.workload.uid for each in evicted if each.preemptor in stale}

    def _write_reservations(self, notes: Iterable[RecordUpdate], now: int) -> None:
        """Write down what is held for whom, before anybody leaves for them."""
        for note in notes:
            facts = self._store.binding(note.workload.uid)
            if facts is not None:
                with self._setting_aside(facts.uid, now):
                    self._submit_write(
                        nomination_write(note, facts), AssumedRecordUpdate(note.nomination, note.reservation)
                    )

    def _submit_decisions(self, decisions: Iterable[Decision], now: int) -> None:
        for decision in decisions:
            facts = self._store.binding(decision.workload.uid)
            if facts is not None:
                with self._setting_aside(facts.uid, now):
                    self._submit_decision(decision, facts, now)

    def _submit_decision(self, decision: Decision, facts: CachedBinding, now: int) -> None:
        if isinstance(decision, Admit) and (term := first_unobserved_term(decision, facts, self.state.cluster_usage)):
            self._observe_affinity(decision, facts, term)
            return
        if isinstance(decision, Evict) and (next_write_at := self._actuator.next_write_at(facts.uid) or 0) > now:
            why = "its eviction was refused"
            self._store.back_off(facts.uid, Refusal(Reason.STARTUP_BACKOFF, subject=why, until=next_write_at))
            return
        excluded_clusters = self._excluded_clusters(decision)
        step = decision_write(
            decision,
            facts,
            template=self._store.template(facts),
            for_whom=self._preemptor_of(decision),
            excluded_clusters=excluded_clusters,
        )
        self._submit_write(
            step, decision.admission if isinstance(decision, Admit) else _assumed_eviction(decision, excluded_clusters)
        )

    def _submit_write(self, step: Write, outcome: AssumedOutcome) -> None:
        """Assume *outcome* and hand on its write, which is whole by now: what cannot be written is not assumed."""
        self._store.assume(step.uid, outcome)
        self._actuator.submit(step)

    @contextmanager
    def _setting_aside(self, uid: WorkloadUid, now: int) -> Iterator[None]:
        """Set one workload aside for a while where its write cannot be built, and go on with the others."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- tenants write what goes into a write; one must not stop all
            self._report("write", uid, error)
            self._set_aside(uid, error, now)

    def _set_aside(self, uid: WorkloadUid, error: Exception, now: int) -> None:
        """Set *uid* aside for a while because of *error*."""
        self._store.quarantine(uid, type(error).__name__, now + _FAILED_WORKLOAD_RETRY_MS)

    def _report(self, step: str, uid: WorkloadUid | None, error: Exception) -> None:
        """Count and log a workload that is set aside."""
        self._metrics.count_internal_error(step)
        facts = self._store.binding(uid) if uid else None
        name = "/".join(part for part in facts.template[1:] if part) if facts else ""
        log.error("workload set aside", workload=name, step=step, exc_info=error)

    def _excluded_clusters(self, decision: Decision) -> Mapping[ClusterName, str]:
        """Return where a workload is not tried from then on, with how those clusters are now (R1)."""
        workload, back_off = decision.workload, decision.back_off if isinstance(decision, Evict) else None
        if back_off is not None:
            return self._store.start_failures.fingerprints(back_off.excluded_clusters)
        return (
            {} if workload.has_run else self._store.start_failures.fingerprints(workload.requirements.excluded_clusters)
        )

    def _requeue(self, workloads: Iterable[Workload], now: int) -> None:
        """Give those to Karmada's scheduler once more who were admitted and do not run (R1)."""
        for workload in workloads:
            facts = self._store.binding(workload.uid)
            if facts is None or facts.is_suspended or not facts.targets:
                continue
            with self._setting_aside(facts.uid, now):
                for step in requeue_writes(facts):
                    self._submit_write(step, AssumedRepair())

    def _observe_affinity(self, decision: Admit, facts: CachedBinding, term: str) -> None:
        """Have Karmada begin with another affinity term, and decide anew when that is seen (C1)."""
        why = f"Karmada is told first to begin with affinity term '{term}'"
        self._store.back_off(facts.uid, Refusal(Reason.STARTUP_BACKOFF, subject=why))
        if self._actuator.next_write_at(facts.uid) is None:
            # Perhaps that is being told already; at the latest when this write is over, it is decided anew.
            return
        self._submit_write(affinity_term_write(decision, facts, term), AssumedRepair())

    def _preemptor_of(self, decision: Decision) -> str:
        uid = decision.preemptor if isinstance(decision, Evict) else None
        workload = self.state.workloads.get(uid) if uid else None
        return workload.path if workload else ""

    def _repair(self, now: int) -> int | None:
        """Put right what the plan does not speak of; return when to try again what was refused."""
        again_at = None
        for uid in self._store.repairable:
            facts = self._store.binding(uid)
            found = None
            with self._setting_aside(uid, now):
                found = self._next_repair(uid, facts) if facts else None
            next_write_at = self._actuator.next_write_at(uid)
            if found is None or next_write_at is None:
                continue
            if next_write_at <= now:
                self._submit_write(found, AssumedRepair())
            else:
                again_at = min(next_write_at, again_at or next_write_at)
        return again_at

    def _next_repair(self, uid: WorkloadUid, facts: CachedBinding) -> Write | None:
        remarks, workload = self._store.conditions.get(uid, frozenset()), self.state.workloads.get(uid)
        found = repair_write(remarks, facts, workload, repairs=self._store.repairs_ungated_bindings)
        if found is None and workload is not None and self.state.has_accepted(uid):
            return confirmation_write(facts, workload)
        return found

    async def _recover(self, error: Exception) -> None:
        """Begin with a new World: who knows what the old one has half taken in.

        Those whom the failed step was about are set aside; then there is no reason to wait for long. What was assumed
        and is not being written is not believed any more.
        """
        self.last_error = f"the last cycle failed: {type(error).__name__}"
        self._metrics.count_failed_cycle()
        found = workloads_in_traceback(error)
        for uid in found:
            self._report("cycle", uid, error)
            self._set_aside(uid, error, self._clock())
        delay = self._backoff.initial if found else self._backoff.next_delay()
        log.error("cycle failed", exc_info=error, again_in=round(delay, 2), quarantine=len(found))
        await asyncio.sleep(delay)
        self._plan_in_progress = None
        self._store.drop_unsent(lambda uid: self._actuator.next_write_at(uid) is None)
        self.state = State(self.state.policy)
        self.decision_recorder.start_file(self.state, self._clock())
        self._resync()

    def _resync(self) -> None:
        """Make news of all that is known."""
        known: tuple[Any, ...] = (
            self._store.queues,
            self._store.clusters,
            self._store.bindings,
            self._store.cluster_bindings,
        )
        for collection in known:
            for facts in tuple(collection):
                collection.upsert(facts)

    async def _wait(self, wake_at: int | None) -> None:
        """Wait for news, but not beyond *wake_at*; after a long look, gather them for a while, too."""
        if self._plan_in_progress is not None:
            await asyncio.sleep(_MIN_BATCHING_SECONDS)
            return
        rested_from = time.monotonic()
        rest = (
            None
            if wake_at is None
            else min(max((wake_at - self._clock()) / 1000, _MIN_WAIT_SECONDS), _MAX_WAIT_SECONDS)
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rest):
                await self._wake.wait()
        gathering = min(max(self._slice_seconds, _MIN_BATCHING_SECONDS), _MAX_BATCHING_SECONDS)
        await asyncio.sleep(max(rested_from + gathering - time.monotonic(), 0))


def workloads_in_traceback(error: Exception) -> list[WorkloadUid]:
    """Return the workloads that the innermost step was about which *error* came out of, as far as it tells."""
    for frame, _ in reversed(list(walk_tb(error.__traceback__))):
        for value in frame.f_locals.values():
            if isinstance(value, Workload):
                return [value.uid]
            if isinstance(value, WorkloadClass) and value.workloads:
                return [workload.uid for workload in value.workloads]
    return []


def _assumed_eviction(decision: Evict, excluded_clusters: Mapping[ClusterName, str]) -> AssumedEviction:
    refusal = decision.back_off.refusal if decision.back_off is not None else None
    return AssumedEviction(refusal, decision.workload.has_run, excluded_clusters)


def _ignore_queries(_: tuple[Query, ...]) -> None:
    """Leave it to the sum."""


def _ignore_waits(_: tuple[Wait, ...]) -> None:
    """Keep it to ourselves."""
