"""The scheduling state at one time with the plan for it, and the search for a workload in it."""

from dataclasses import dataclass
from difflib import get_close_matches

from controller.cache.objects import VOLCANO_JOB, CachedBinding, CachedTemplate, TemplateKey, group_kind
from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.engine.fairness.shares import QueueShares
from controller.engine.plan import Admit, Plan
from controller.engine.state.workloads import Workload, WorkloadUid

_JOB = "Job"
_SUGGESTED = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The observed objects, the engine's state and its plan at *now*.

    The state is that after the plan: it includes the charges of the workloads that the plan admits.
    """

    store: Store
    state: Engine
    plan: Plan
    now: int

    @property
    def shares(self) -> QueueShares:
        """Return the shares of the queues after the plan."""
        if self.state.queue_shares is None:
            raise AssertionError("planning computes the shares")
        return self.state.queue_shares

    def admission(self, uid: WorkloadUid) -> Admit | None:
        """Return the plan's decision to admit *uid*, or ``None``."""
        for decision in self.plan.decisions:
            if isinstance(decision, Admit) and decision.workload.uid == uid:
                return decision
        return None

    def binding(self, workload: Workload) -> CachedBinding | None:
        """Return the binding of *workload*."""
        return self.store.binding(workload.uid)


def take_snapshot(store: Store, now: int) -> Snapshot:
    """Return the state built from *store* at *now*, with the plan of one scheduling cycle."""
    state = Engine()
    store.sync_to(state, now)
    return Snapshot(store, state, state.plan(now), now)


class NotFoundError(Exception):
    """There is no workload of that name; the message suggests names or says why the job is not managed."""


def find_job(snapshot: Snapshot, namespace: str, name: str) -> Workload:
    """Return the workload of a job; a Volcano Job takes precedence over other kinds of the same name.

    Raises `NotFoundError`, also for a job that is not managed by admission.
    """
    workloads = [workload for workload in _workloads(snapshot, namespace) if workload.name == name]
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
    return [workload for workload in snapshot.state.workloads.values() if workload.namespace == namespace]


def _why_not_managed(snapshot: Snapshot, job: CachedTemplate) -> str:
    path = f"Job {job.key.namespace}/{job.key.name}"
    binding = next((candidate for candidate in snapshot.store.bindings if candidate.template == job.key), None)
    if binding is None:
        return f"{path} has no binding yet: no PropagationPolicy selects it, or Karmada has not processed it yet"
    if not binding.is_suspended:
        return f"{path} is not managed: its binding is not suspended, so Karmada places it without admission"
    return f"{path} is not managed: its namespace is exempt, or it is being deleted"


def _suggest(snapshot: Snapshot, namespace: str, name: str) -> str:
    workloads = snapshot.state.workloads.values()
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
