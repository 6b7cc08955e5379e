"""The report of a simulation."""

from collections.abc import Iterable

from msgspec.structs import replace

from controller.cli.render.plan import ClusterTarget
from controller.cli.render.simulate import SimulationEvent, SimulationReport, SimulationWhatIf
from controller.engine.reasons import EvictionReason, Refusal
from controller.reporting.messages import EVICTION_MESSAGES, pending_message
from controller.simulator.comparison import VariantFigures
from controller.simulator.jobs import LogEntry
from controller.simulator.per_pod import PerPodReport
from controller.simulator.simulation import SimulationResult
from controller.simulator.summary import summarise
from controller.simulator.trace import seconds


def simulation_report(result: SimulationResult, per_pod: PerPodReport | None = None) -> SimulationReport:
    """Return the report of a simulation."""
    return SimulationReport(tuple(map(_event, result.log)), summarise(result), per_pod)


def with_summary_before(report: SimulationReport, result: SimulationResult, changes: Iterable[str]) -> SimulationReport:
    """Return *report* with the summary of *result*, the simulation without *changes*."""
    return replace(report, what_if=SimulationWhatIf(tuple(changes), summarise(result)))


def with_backfill(report: SimulationReport, variants: Iterable[VariantFigures]) -> SimulationReport:
    """Return *report* with the comparison of other ways to treat large jobs."""
    return replace(report, backfill=tuple(variants))


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
