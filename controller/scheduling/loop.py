"""Runs the admission loop: waits for changes, lets the engine decide, and submits the decisions.

The wake event carries no data; the present state is read from the store.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from traceback import walk_tb
from typing import Any, NoReturn

import structlog

from controller.cache.assumed_writes import AssumedEviction, AssumedOutcome, AssumedRecordUpdate, AssumedRepair
from controller.cache.objects import CachedBinding
from controller.cache.store import QUARANTINE_MS, Store
from controller.engine.engine import Engine
from controller.engine.placement.filter import candidates
from controller.engine.plan import Admit, Decision, Evict, Plan, RecordUpdate, Wait
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import ClusterName
from controller.engine.state.estimates import Query
from controller.engine.state.pending import WorkloadClass
from controller.engine.state.workloads import Workload, WorkloadUid
from controller.engine.steps import Steps, advance
from controller.kube.informer import Informer
from controller.kube.timing import Backoff, Clock, wall_clock
from controller.reporting.decision_log.log import CycleContext, DecisionRecorder
from controller.reporting.metrics import ControllerMetrics
from controller.scheduling.actuator import Actuator
from controller.scheduling.writes import (
    Write,
    affinity_term_write,
    confirmation_write,
    decision_write,
    record_update_write,
    repair_write,
    requeue_writes,
)

#: Evaluations of a workload on a cluster in one slice; a slice takes some hundredths of a second.
_STEPS_PER_SLICE = 2000
#: Changed workloads are sent to the engine's state in slices of about 0.1 s, so that the lease is renewed in between.
_MAX_SYNCED_WORKLOADS = 2_000
#: After so many preparation slices a plan is made, even if some workloads were not evaluated.
_MAX_PREPARATION_SLICES = 500
#: Interval at which the set of caches to wait for is read again, in seconds.
_SYNC_POLL_SECONDS = 1
#: Longest wait for a time of day, because clocks may jump, in seconds.
_MAX_WAIT_SECONDS = 60
_MIN_WAIT_SECONDS = 0.02
#: Changes are batched for as long as the last slice took, within these bounds, in seconds.
_MIN_BATCHING_SECONDS = 0.005
_MAX_BATCHING_SECONDS = 0.05
log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


def first_unobserved_term(decision: Admit, binding: CachedBinding, cluster_usage: ClusterUsage) -> str:
    """Return the affinity term to observe before *decision* is carried out, or an empty string if none is needed."""
    requirements = decision.workload.requirements
    if requirements.placement.affinity is not None or not requirements.placement.terms:
        return ""
    term = candidates(requirements, cluster_usage.clusters).term
    begins_with = binding.details.observed_term or requirements.placement.terms[0].name
    return term if term != begins_with else ""


class AdmissionLoop:
    """Applies changes from the store to the engine's state and submits its decisions to the actuator."""

    on_waits: list[Callable[[tuple[Wait, ...]], None]]
    """Called after each plan with the workloads whose pending reason changed; they must not block."""
    on_queries: list[Callable[[tuple[Query, ...]], None]]
    """Called with the queries for the clusters' scheduler estimators."""

    def __init__(
        self,
        store: Store,
        actuator: Actuator,
        caches: Mapping[str, Informer[Any]],
        *,
        metrics: ControllerMetrics,
        clock: Clock = wall_clock,
    ) -> None:
        self.engine = Engine()
        self.last_error: str | None = None
        """Why the last cycle failed."""
        self.on_waits = []
        self.on_queries = []
        self.decision_recorder = DecisionRecorder()
        """Records every decision."""
        self._store = store
        self._actuator = actuator
        self._caches = caches
        self._metrics = metrics
        self._clock = clock
        self._backoff = Backoff(initial=0.5, maximum=30)
        self._is_synced = True
        """Whether the engine's state has received all changes of the store."""
        self._slice_seconds = 0.0
        self._preparation_slices = 0
        """Preparation slices since the last plan."""
        self._repairs = set[WorkloadUid]()
        """Bindings with a repair in progress, as of the last cycle."""
        self._plan_in_progress: tuple[Steps[Plan], CycleContext] | None = None
        """The plan that is being made in several slices."""
        self._plan_seconds = 0.0
        """Duration of its slices so far, in seconds."""
        self._plan_slices = 0
        """Number of its slices so far."""
        self._wake = asyncio.Event()
        store.on_change.append(self._wake.set)
        store.on_error.append(partial(self._report, "build"))

    @property
    def problem(self) -> str | None:
        """Return why nothing is decided, ``None`` if decisions are made."""
        unsynced = next((name for name, cache in self._caches.items() if not cache.synced.is_set()), None)
        return f"{unsynced} not known yet" if unsynced is not None else self.last_error

    def wake(self) -> None:
        """Start a cycle after a change outside the store."""
        self._wake.set()

    def on_leadership_lost(self) -> None:
        """Start with a new state: another leader decides and publishes reasons until this process leads again."""
        self._store.forget_commands()
        self._reset_state()

    async def run(self) -> NoReturn:
        """Run a cycle after every change, until cancelled."""
        while True:
            if await self._until_synced() and self._plan_in_progress is not None:
                # Another leader may have decided meanwhile, on capacity that this plan takes as free.
                self._reset_state()
            self._wake.clear()
            try:
                wake_at = self._cycle()
            except Exception as error:  # noqa: BLE001 -- the one outer guard: a failed cycle must not end admission
                await self._recover(error)
            else:
                self.last_error = None
                self._backoff.reset()
                await self._wait(wake_at)

    async def _until_synced(self) -> bool:
        """Wait until every cache is in sync; return whether one was not."""
        has_waited = False
        while missing := [cache for cache in self._caches.values() if not cache.synced.is_set()]:
            # A cache that was removed never gets in sync; the next iteration does not list it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SYNC_POLL_SECONDS):
                    await missing[0].synced.wait()
            has_waited = True
        return has_waited

    def _cycle(self) -> int | None:
        """Run one slice of a cycle; return when to run the next one without a change, in milliseconds."""
        began, now = time.monotonic(), self._clock()
        if self._plan_in_progress is not None:
            return self._advance_plan(now, began)
        handler = self.decision_recorder.recording_handler(self.engine)
        self._is_synced = self._store.sync_to(handler, now, most=_MAX_SYNCED_WORKLOADS)
        if not self._is_synced:
            return now
        self.decision_recorder.rotate_if_due(self.engine, now)
        if not self._actuator.may_write:
            self._preparation_slices = 0
            self._metrics.reserved_idle.read({}, now)
            self.engine.forget_deleted()
            return None
        if not self._prepare():
            self._slice_seconds = time.monotonic() - began
            return now
        if self._is_backlogged:
            return self._next_wake(now, now)
        batch_size = self._actuator.max_backlog - self._actuator.backlog
        self._plan_in_progress = (
            self.engine.plan_in_steps(now, most=batch_size),
            CycleContext(now, batch_size, self._store.revision),
        )
        self._plan_seconds, self._plan_slices = 0.0, 0
        return self._advance_plan(now, began)

    @property
    def _is_backlogged(self) -> bool:
        """Whether so many decisions wait to be sent that none is made."""
        return self._actuator.max_backlog - self._actuator.backlog < self._actuator.max_backlog // 2

    def _prepare(self) -> bool:
        """Evaluate pending workloads in a bounded slice; return whether the next plan can be made.

        Other tasks run between slices. Changes that arrive meanwhile are evaluated too, but a plan is made eventually.
        """
        if self._preparation_slices < _MAX_PREPARATION_SLICES and not self.engine.prepare(_STEPS_PER_SLICE):
            self._preparation_slices += 1
            return False
        self._preparation_slices = 0
        return True

    def _advance_plan(self, now: int, began: float) -> int | None:
        """Continue the plan for a bounded number of steps; return when to continue.

        No changes are applied to the state before the plan is finished, so that its slices decide as one pass would.
        """
        if self._plan_in_progress is None:
            raise AssertionError("no plan is in progress")
        work, context = self._plan_in_progress
        made = advance(work, _STEPS_PER_SLICE)
        self._slice_seconds = time.monotonic() - began
        self._plan_seconds += self._slice_seconds
        self._plan_slices += 1
        if made is None:
            return now
        self._plan_in_progress = None
        self._metrics.count_cycle(self._plan_seconds)
        self._metrics.reserved_idle.read(self.engine.idle_for_reservations(now), now)
        planned_at = self._apply_plan(made[0], context, now)
        # Changes since the first slice were not applied to the state yet.
        return self._next_wake(planned_at if self._plan_slices == 1 else now, now)

    def _next_wake(self, planned_at: int | None, now: int) -> int | None:
        """Return the time of the next cycle: for the plan, for repairs, or for the store."""
        wake_ats = (planned_at, self._repair(now), self._store.next_retry_at)
        return min((at for at in wake_ats if at is not None), default=None)

    def _apply_plan(self, plan: Plan, context: CycleContext, now: int) -> int | None:
        """Submit the decisions of *plan*; return the time of the next plan."""
        self.decision_recorder.record_plan(self.engine, plan, context)
        for error in self.engine.pop_failures():
            self._report("decide", None, error)
        stale = self._stale(plan)
        self._store.mark_changed(stale)
        self._write_record_updates([update for update in plan.record_updates if update.workload.uid not in stale], now)
        self._requeue([workload for workload in plan.reschedules if workload.uid not in stale], now)
        self._submit_decisions([item for item in plan.decisions if item.workload.uid not in stale], now)
        for on_waits in self.on_waits:
            on_waits(plan.waits)
        for on_queries in self.on_queries:
            on_queries(plan.queries)
        return now if plan.is_cut else plan.wake_at

    def _stale(self, plan: Plan) -> set[WorkloadUid]:
        """Return the workloads of *plan* that changed since its first slice, and the decisions that depend on them.

        These are decided again: parts of a HyperJob together, and victims together with their preemptor.
        """
        if self._plan_slices == 1:
            return set()
        decided = (*plan.decisions, *plan.record_updates)
        stale = {item.workload.uid for item in decided if self._store.has_changed(item.workload.uid)}
        stale |= {workload.uid for workload in plan.reschedules if self._store.has_changed(workload.uid)}
        if not stale:
            return stale
        admissions = [decision for decision in plan.decisions if isinstance(decision, Admit) and decision.plan_id]
        plans = {admission.plan_id for admission in admissions if admission.workload.uid in stale}
        stale |= {admission.workload.uid for admission in admissions if admission.plan_id in plans}
        every_eviction = [item for item in plan.decisions if isinstance(item, Evict)]
        gangs = {eviction.workload.gang for eviction in every_eviction if eviction.workload.uid in stale} - {None}
        stale |= {eviction.workload.uid for eviction in every_eviction if eviction.workload.gang in gangs}
        evictions = [eviction for eviction in every_eviction if eviction.preemptor is not None]
        preemptors = {eviction.preemptor for eviction in evictions if eviction.workload.uid in stale} | stale
        # The evictions name the first one of the parts that were nominated together.
        nominated = [update.workload for update in plan.record_updates if update.nomination is not None]
        nominated_gangs = {part.gang for part in nominated if part.uid in preemptors} - {None}
        preemptors |= {part.uid for part in nominated if part.gang in nominated_gangs}
        stale |= {part.uid for part in nominated if part.uid in preemptors}
        return stale | {eviction.workload.uid for eviction in evictions if eviction.preemptor in preemptors}

    def _write_record_updates(self, updates: Iterable[RecordUpdate], now: int) -> None:
        """Record nominations and reservations before the evictions that they depend on.

        What ends while the workload backs off is written afterwards, if it has not become valid again by then.
        """
        for update in updates:
            binding = self._store.binding(update.workload.uid)
            if binding is None:
                continue
            next_write_at = self._actuator.next_write_at(binding.uid) or 0
            if next_write_at > now and update.nomination is None and update.reservation is None:
                self._store.send_again_at(binding.uid, next_write_at)
                continue
            with self._quarantining(binding.uid, now):
                self._submit_write(
                    record_update_write(update, binding), AssumedRecordUpdate(update.nomination, update.reservation)
                )

    def _submit_decisions(self, decisions: Iterable[Decision], now: int) -> None:
        for decision in decisions:
            binding = self._store.binding(decision.workload.uid)
            if binding is not None:
                with self._quarantining(binding.uid, now):
                    self._submit_decision(decision, binding, now)

    def _submit_decision(self, decision: Decision, binding: CachedBinding, now: int) -> None:
        if isinstance(decision, Admit) and (
            term := first_unobserved_term(decision, binding, self.engine.cluster_usage)
        ):
            self._observe_affinity(decision, binding, term)
            return
        if isinstance(decision, Evict) and (next_write_at := self._actuator.next_write_at(binding.uid) or 0) > now:
            why = "its eviction was refused"
            self._store.back_off(binding.uid, Refusal(Reason.STARTUP_BACKOFF, subject=why, until=next_write_at))
            return
        excluded_clusters = self._excluded_clusters(decision)
        step = decision_write(
            decision,
            binding,
            template=self._store.template(binding),
            preemptor=self._preemptor_of(decision),
            excluded_clusters=excluded_clusters,
            now=now,
        )
        self._submit_write(
            step, decision.admission if isinstance(decision, Admit) else _assumed_eviction(decision, excluded_clusters)
        )

    def _submit_write(self, step: Write, outcome: AssumedOutcome) -> None:
        """Assume *outcome* and submit its write, in this order: a write that cannot be built is not assumed."""
        self._store.assume(step.uid, outcome)
        self._actuator.submit(step)

    @contextmanager
    def _quarantining(self, uid: WorkloadUid, now: int) -> Iterator[None]:
        """Quarantine one workload if its write cannot be built, and continue with the others."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- writes contain input of tenants; one must not stop the others
            self._report("write", uid, error)
            self._quarantine(uid, error, now)

    def _quarantine(self, uid: WorkloadUid, error: Exception, now: int) -> None:
        """Exclude *uid* from admission for a while because of *error*."""
        self._store.quarantine(uid, type(error).__name__, now + QUARANTINE_MS)

    def _report(self, step: str, uid: WorkloadUid | None, error: Exception) -> None:
        """Count and log a workload that is quarantined."""
        self._metrics.count_internal_error(step)
        binding = self._store.binding(uid) if uid else None
        name = binding.template.path if binding else ""
        log.error("workload quarantined", workload=name, step=step, exc_info=error)

    def _excluded_clusters(self, decision: Decision) -> Mapping[ClusterName, str]:
        """Return the clusters where a workload itself did not start, with their fingerprints (R1)."""
        workload, back_off = decision.workload, decision.back_off if isinstance(decision, Evict) else None
        if back_off is not None:
            return self._store.start_failures.fingerprints(back_off.excluded_clusters)
        return {} if workload.has_run else self._store.start_failures.own_exclusions(workload.uid)

    def _requeue(self, workloads: Iterable[Workload], now: int) -> None:
        """Make Karmada's scheduler retry admitted workloads that do not run (R1)."""
        for workload in workloads:
            binding = self._store.binding(workload.uid)
            if binding is None or binding.is_suspended or not binding.targets:
                continue
            with self._quarantining(binding.uid, now):
                for step in requeue_writes(binding):
                    self._submit_write(step, AssumedRepair())

    def _observe_affinity(self, decision: Admit, binding: CachedBinding, term: str) -> None:
        """Set the affinity term for Karmada's scheduler first, and decide again when it is observed (C1)."""
        why = f"waiting until Karmada observes affinity term '{term}'"
        self._store.back_off(binding.uid, Refusal(Reason.STARTUP_BACKOFF, subject=why))
        if self._actuator.next_write_at(binding.uid) is None:
            # A write is in progress, perhaps this one; its outcome triggers the next decision.
            return
        self._submit_write(affinity_term_write(decision, binding, term), AssumedRepair())

    def _preemptor_of(self, decision: Decision) -> str:
        uid = decision.preemptor if isinstance(decision, Evict) else None
        workload = self.engine.workloads.get(uid) if uid else None
        return workload.path if workload else ""

    def _repair(self, now: int) -> int | None:
        """Repair bindings that the plan does not cover; return when to retry rejected repairs.

        Repairs use at most half of the writes that may wait, so that decisions are written meanwhile. The outcome of
        each write starts another cycle, which continues with the others.
        """
        self._repairs = {uid for uid in self._repairs if self._actuator.next_write_at(uid) is None}
        again_at = None
        for uid in self._store.repairable:
            if len(self._repairs) >= self._actuator.max_backlog // 2:
                break
            next_write_at = self._actuator.next_write_at(uid)
            binding = self._store.binding(uid)
            if next_write_at is None or binding is None:
                continue
            repair = None
            with self._quarantining(uid, now):
                repair = self._next_repair(uid, binding, now)
            if repair is None:
                continue
            if next_write_at <= now:
                self._repairs.add(uid)
                self._submit_write(repair, AssumedRepair())
            else:
                again_at = min(next_write_at, again_at or next_write_at)
        return again_at

    def _next_repair(self, uid: WorkloadUid, binding: CachedBinding, now: int) -> Write | None:
        conditions, workload = self._store.conditions.get(uid, frozenset()), self.engine.workloads.get(uid)
        template, repairs = self._store.template(binding), self._store.configuration.repair.ungated_bindings
        repair = repair_write(conditions, binding, workload, template=template, repairs=repairs, now=now)
        if repair is None and workload is not None and self.engine.has_accepted(uid):
            return confirmation_write(binding, workload)
        return repair

    async def _recover(self, error: Exception) -> None:
        """Start with a new state after a failed cycle, because the old one may be inconsistent.

        Workloads that caused the failure are quarantined, and the next cycle starts soon. Assumed decisions that are
        not being written are dropped.
        """
        self.last_error = f"the last cycle failed: {type(error).__name__}"
        self._metrics.count_failed_cycle()
        suspected = workloads_in_traceback(error)
        for uid in suspected:
            self._report("cycle", uid, error)
            self._quarantine(uid, error, self._clock())
        delay = self._backoff.initial if suspected else self._backoff.next_delay()
        log.error("cycle failed", exc_info=error, again_in=round(delay, 2), quarantine=len(suspected))
        await asyncio.sleep(delay)
        self._reset_state()

    def _reset_state(self) -> None:
        """Drop the plan in progress and the assumed decisions that are not being written, with the state."""
        self._plan_in_progress = None
        self._store.drop_unsent(lambda uid: self._actuator.next_write_at(uid) is None)
        self.engine = Engine(self.engine.policy)
        self.decision_recorder.start_file(self.engine, self._clock())
        self._store.mark_all_changed()

    async def _wait(self, wake_at: int | None) -> None:
        """Wait for a change, at most until *wake_at*; then batch changes in proportion to the last slice.

        While nothing is decided, because many decisions wait to be sent, changes are batched for longer.
        """
        if self._plan_in_progress is not None or not self._is_synced or self._preparation_slices:
            await asyncio.sleep(_MIN_BATCHING_SECONDS)
            return
        wait_began = time.monotonic()
        timeout = (
            None
            if wake_at is None
            else min(max((wake_at - self._clock()) / 1000, _MIN_WAIT_SECONDS), _MAX_WAIT_SECONDS)
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        least = _MAX_BATCHING_SECONDS if self._is_backlogged else _MIN_BATCHING_SECONDS
        batching = min(max(self._slice_seconds, least), _MAX_BATCHING_SECONDS)
        await asyncio.sleep(max(wait_began + batching - time.monotonic(), 0))


def workloads_in_traceback(error: Exception) -> list[WorkloadUid]:
    """Return the workloads in the local variables of the innermost frame of *error* that has any."""
    for frame, _ in reversed(list(walk_tb(error.__traceback__))):
        for value in frame.f_locals.values():
            if isinstance(value, Workload):
                return [value.uid]
            if isinstance(value, WorkloadClass) and value.workloads:
                return [workload.uid for workload in value.workloads]
    return []


def _assumed_eviction(decision: Evict, excluded_clusters: Mapping[ClusterName, str]) -> AssumedEviction:
    back_off = decision.back_off
    return AssumedEviction(
        back_off.refusal if back_off is not None else None,
        decision.has_run,
        excluded_clusters,
        decision.reason.is_self_caused,
        back_off.failed_clusters if back_off is not None else (),
    )
