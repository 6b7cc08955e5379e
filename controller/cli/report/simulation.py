"""Reports a simulation; the JSON form is a stable interface for programs."""

import msgspec

from controller.cli.commands.plan import ClusterTarget
from controller.engine.reasons import EvictionReason, Refusal
from controller.reporting.messages import EVICTION_MESSAGES, pending_message
from controller.simulator.durations import seconds
from controller.simulator.event_log import LogEntry
from controller.simulator.per_pod import PerPodResult
from controller.simulator.simulation import SimulationResult
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
    deadlocked_jobs: int
    """Number of jobs that hold capacity and never run."""
    wasted_pods: int


class SimulationReport(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """Events in order and summary of a simulation; ``perPod`` is set if a comparison was requested."""

    events: tuple[SimulationEvent, ...]
    summary: Summary
    per_pod: PerPodReport | None = None


def simulation_report(result: SimulationResult, per_pod: PerPodReport | None = None) -> SimulationReport:
    """Return the report of a simulation."""
    return SimulationReport(tuple(map(_event, result.log)), summarise(result), per_pod)


def per_pod_report(result: PerPodResult, seed: int) -> PerPodReport:
    """Return the report of the pod-by-pod comparison."""
    return PerPodReport(
        seed=seed,
        jobs=result.jobs,
        finished=result.finished,
        finished_at=None if result.finished_at is None else seconds(result.finished_at),
        deadlocked=result.is_deadlocked,
        deadlocked_jobs=result.stuck_jobs,
        wasted_pods=result.wasted_pods,
    )


def _event(entry: LogEntry) -> SimulationEvent:
    workload = entry.workload
    return SimulationEvent(
        time=seconds(entry.at),
        action=entry.action,
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        queue=workload.queue,
        clusters=tuple(ClusterTarget(assignment.name, assignment.replicas) for assignment in entry.clusters),
        reason=_reason(entry),
        message=_message(entry),
    )


def _reason(entry: LogEntry) -> str | None:
    return entry.cause.reason if isinstance(entry.cause, Refusal) else entry.cause


def _message(entry: LogEntry) -> str:
    if entry.cause is None:
        return ""
    return EVICTION_MESSAGES[entry.cause] if isinstance(entry.cause, EvictionReason) else pending_message(entry.cause)
