"""The scheduling state at one time with the plan for it, and the search for a workload in it."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import partial

from controller.api.configuration import VolcanoGlobalConfiguration, configuration_revision
from controller.cache.objects import VOLCANO_JOB, CachedBinding, CachedTemplate, TemplateKey, group_kind
from controller.cache.store import Store
from controller.cli.errors import NotFoundError
from controller.cli.input.labels import Selector
from controller.controllers.data_sources.claims import ClaimIndex
from controller.engine.checkpoint import History, take_history
from controller.engine.engine import Engine
from controller.engine.fairness.shares import QueueShares
from controller.engine.plan import Admit, Plan
from controller.engine.state.hierarchy import ROOT
from controller.engine.state.resources import PODS
from controller.engine.state.workloads import Workload, WorkloadUid
from controller.forecast.profiles import finished_runs, with_run_time
from controller.forecast.run_times import RunTimes
from controller.reporting.current_usage import CurrentUsage, current_usage

_JOB = "Job"
_SECOND = 1000
_SUGGESTED = 3
_ALWAYS_SHOWN = frozenset({"cpu", "memory"})
TemplateNames = frozenset[tuple[str, str, str]]
"""Kind, namespace and name of objects."""


class ConfigurationSource(StrEnum):
    """Where the configuration of a snapshot comes from."""

    PUBLISHED = "Published"
    FILE = "File"
    DEFAULTS = "Defaults"


@dataclass(frozen=True, slots=True)
class ActiveConfiguration:
    """The configuration of a snapshot, and where it comes from."""

    values: VolcanoGlobalConfiguration
    source: ConfigurationSource

    @property
    def revision(self) -> str:
        """Return the revision, the same as in the controller's logs."""
        return configuration_revision(self.values)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The observed objects, the engine's state and its plan at *now*.

    The state is that after the plan: it includes the charges of the workloads that the plan admits.
    """

    store: Store
    engine: Engine
    plan: Plan
    now: int
    current: CurrentUsage
    configuration: ActiveConfiguration
    history: History
    """What the engine knew, in addition to its objects, before the plan."""
    run_times: RunTimes | None = None
    """Learned run times; ``None`` where no run is known."""
    resources: frozenset[str] = frozenset()
    """The resources that any queue uses, requests or limits, and cpu, memory and devices of the clusters."""
    claims: ClaimIndex | None = None
    """The claims and sources of data; ``None`` where there are none, or not all may be read."""
    selected: Callable[[Selector], TemplateNames] | None = None
    """Returns the objects of the files that a selector selects; ``None`` for a live control plane."""

    @property
    def observed(self) -> dict[WorkloadUid, Workload]:
        """Return all workloads, those that the plan admits or evicts as they are before it."""
        decided = {decision.workload.uid: decision.workload for decision in reversed(self.plan.decisions)}
        return {**self.engine.workloads, **decided}

    @property
    def shares(self) -> QueueShares:
        """Return the shares of the queues after the plan."""
        if self.engine.queue_shares is None:
            raise AssertionError("planning computes the shares")
        return self.engine.queue_shares

    def admission(self, uid: WorkloadUid) -> Admit | None:
        """Return the plan's decision to admit *uid*, or ``None``."""
        for decision in self.plan.decisions:
            if isinstance(decision, Admit) and decision.workload.uid == uid:
                return decision
        return None

    def binding(self, workload: Workload) -> CachedBinding | None:
        """Return the binding of *workload*."""
        return self.store.binding(workload.uid)


def take_snapshot(
    store: Store, now: int, configuration: ActiveConfiguration, run_times: RunTimes | None = None
) -> Snapshot:
    """Return the state built from *store* at *now*, with the plan of one scheduling cycle.

    Without stored *run_times*, they are learned from the finished workloads in *store*.
    """
    if run_times is None:
        run_times = RunTimes()
        for ended_at, profile, run in finished_runs(store):
            # One that ends now may be one that `--what-if` completes, of which no run time is known.
            if ended_at < now // _SECOND * _SECOND:
                run_times.record(profile, run)
    store.with_run_time = partial(with_run_time, store, run_times)
    engine = Engine()
    store.sync_to(engine, now)
    return plan_snapshot(store, engine, now, configuration, run_times)


def plan_snapshot(
    store: Store, engine: Engine, now: int, configuration: ActiveConfiguration, run_times: RunTimes
) -> Snapshot:
    """Plan one cycle of *engine*, which has all objects of *store*, and return the snapshot with the plan."""
    current, history = current_usage(engine), take_history(engine)
    plan = engine.plan(now)
    known = run_times if len(run_times) else None
    return Snapshot(store, engine, plan, now, current, configuration, history, known, _resources(engine))


def _resources(engine: Engine) -> frozenset[str]:
    resources = set(engine.queue_shares.fair_shares[ROOT]) if engine.queue_shares is not None else set()
    for queue in engine.queues.values():
        resources.update(queue.capability, queue.deserved, queue.guarantee)
    for cluster in engine.cluster_usage:
        resources.update(name for name in cluster.allocatable if "/" in name or name in _ALWAYS_SHOWN)
    return frozenset(resources) - {PODS}


def find_job(snapshot: Snapshot, namespace: str, name: str) -> Workload:
    """Return the workload of a job; a Volcano Job takes precedence over other kinds of the same name.

    A cluster-scoped workload is found in every *namespace*, after the workloads of that namespace. Raises
    `NotFoundError`, also for a job that is not managed by admission.
    """
    for within in (namespace, ""):
        workloads = [workload for workload in _workloads(snapshot, within) if workload.name == name]
        if workloads:
            return min(workloads, key=_sort_key)
    job = snapshot.store.jobs.get(TemplateKey(VOLCANO_JOB, namespace, name))
    if job is not None:
        raise NotFoundError(_why_not_managed(snapshot, job))
    raise NotFoundError(_suggest(snapshot, namespace, name))


def _sort_key(workload: Workload) -> tuple[bool, bool, str, str]:
    is_volcano = group_kind(workload.requirements.api) == VOLCANO_JOB
    return not is_volcano, workload.kind != _JOB, workload.kind, workload.uid


def _workloads(snapshot: Snapshot, namespace: str) -> list[Workload]:
    return [workload for workload in snapshot.engine.workloads.values() if workload.namespace == namespace]


def _why_not_managed(snapshot: Snapshot, job: CachedTemplate) -> str:
    path = f"Job {job.key.namespace}/{job.key.name}"
    binding = next((candidate for candidate in snapshot.store.bindings if candidate.template == job.key), None)
    if binding is None:
        return f"{path} has no binding yet: no PropagationPolicy selects it, or Karmada has not processed it yet"
    if not binding.is_suspended:
        return f"{path} is not managed: its binding is not suspended, so Karmada places it without admission"
    return f"{path} is not managed: its namespace is exempt, or it is being deleted"


def _suggest(snapshot: Snapshot, namespace: str, name: str) -> str:
    workloads = snapshot.engine.workloads.values()
    elsewhere = sorted({workload.namespace for workload in workloads if workload.name == name})
    if elsewhere:
        return f"Job {namespace}/{name} does not exist; there is one in {_join_names(elsewhere)}"
    names = sorted({workload.name for workload in _workloads(snapshot, namespace)})
    near = get_close_matches(name, names, n=_SUGGESTED)
    if near:
        return f"Job {namespace}/{name} does not exist; did you mean {_join_names(near)}?"
    there = f"namespace {namespace} has {_join_names(names)}" if names else f"namespace {namespace} has no job at all"
    return f"Job {namespace}/{name} does not exist; {there}"


def _join_names(names: list[str]) -> str:
    more = len(names) - _SUGGESTED
    return ", ".join(names[:_SUGGESTED]) + (f" and {more} more" if more > 0 else "")
