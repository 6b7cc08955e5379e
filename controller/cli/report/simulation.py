"""Reports a simulation; the JSON form is a stable interface for programs."""

import msgspec

from controller.cli.report.plan import ClusterTarget
from controller.engine.reasons import EvictionReason, Refusal
from controller.messages import EVICTION_MESSAGES, pending_message
from controller.simulator.driver import Outcome
from controller.simulator.journal import Entry
from controller.simulator.perpod import PerPod
from controller.simulator.spans import seconds
from controller.simulator.summary import Number, Summary, summarise


class SimulationEvent(msgspec.Struct, frozen=True):
    """One event of the simulation, ``time`` seconds after the start."""

    time: Number
    action: str
    kind: str
    namespace: str
    name: str
    queue: str
    clusters: tuple[ClusterTarget, ...]
    reason: str | None
    message: str


class PerPodReport(msgspec.Struct, rename="camel", frozen=True):
    """Result for the same jobs with pods admitted one by one."""

    seed: int
    jobs: int
    finished: int
    finished_at: Number | None
    deadlocked: bool
    jobs_stuck: int
    """Number of jobs that hold capacity and never run."""
    pods_in_vain: int


class SimulationReport(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """Events in order and summary of a simulation; ``perPod`` is set if a comparison was requested."""

    events: tuple[SimulationEvent, ...]
    summary: Summary
    per_pod: PerPodReport | None = None


def simulation_report(outcome: Outcome, per_pod: PerPodReport | None = None) -> SimulationReport:
    """Return the report of a simulation."""
    return SimulationReport(tuple(map(_event, outcome.journal)), summarise(outcome), per_pod)


def per_pod_report(outcome: PerPod, seed: int) -> PerPodReport:
    """Return the report of the pod-by-pod comparison."""
    return PerPodReport(
        seed=seed,
        jobs=outcome.jobs,
        finished=outcome.finished,
        finished_at=None if outcome.finished_at is None else seconds(outcome.finished_at),
        deadlocked=outcome.is_deadlocked,
        jobs_stuck=outcome.holders,
        pods_in_vain=outcome.pods_in_vain,
    )


def _event(entry: Entry) -> SimulationEvent:
    workload = entry.workload
    return SimulationEvent(
        time=seconds(entry.at),
        action=entry.action,
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        queue=workload.queue,
        clusters=tuple(ClusterTarget(each.name, each.replicas) for each in entry.clusters),
        reason=_reason(entry),
        message=_message(entry),
    )


def _reason(entry: Entry) -> str | None:
    return entry.cause.reason if isinstance(entry.cause, Refusal) else entry.cause


def _message(entry: Entry) -> str:
    if entry.cause is None:
        return ""
    return EVICTION_MESSAGES[entry.cause] if isinstance(entry.cause, EvictionReason) else pending_message(entry.cause)
