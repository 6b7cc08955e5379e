"""The `simulate` command: runs the engine with submitted jobs on virtual time."""

import sys
from dataclasses import dataclass
from enum import StrEnum
from time import process_time
from typing import Annotated

import typer

from controller.cli.commands.options import CommonOptions, with_common_options
from controller.cli.input.traces import read_trace
from controller.cli.render.output import progress_bar
from controller.cli.render.plan import ClusterTarget
from controller.cli.render.simulate import PerPodReport, SimulationEvent, SimulationReport, simulation_table
from controller.engine.reasons import EvictionReason, Refusal
from controller.reporting.messages import EVICTION_MESSAGES, pending_message
from controller.simulator.jobs import LogEntry
from controller.simulator.per_pod import PerPodResult, admit_per_pod
from controller.simulator.simulation import Simulation, SimulationResult
from controller.simulator.summary import summarise
from controller.simulator.trace import DurationError, SimulationSettings, Trace, parse_duration, seconds

_RUNTIME = 600_000
_STATUS_PERIOD = 10_000

# A line with only a backspace prevents the lines after it from being rewrapped.
HELP = """
Simulate jobs on virtual time and print statistics: waiting times, utilisation and fairness.

Files are those of plan. The annotation volcano-global.io/submit is the time at which a job is submitted (90s after the
start; at the start if missing), volcano-global.io/runtime is its run time. Clusters, queues and the
VolcanoGlobalConfiguration do not change. Times are whole numbers with h, m, s or ms: 1h30m, 90s, 200ms.

\b
Examples:
  volcano-global simulate -f objects.yaml --until 8h
  volcano-global simulate -f objects.yaml -o json | jq .summary
  volcano-global simulate -f objects.yaml --compare per-pod
  volcano-global simulate -f objects.yaml --writes 50
"""


class Comparison(StrEnum):
    """Alternatives that a simulation can be compared with."""

    PER_POD = "per-pod"


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """The trace to simulate and the options of the simulation."""

    trace: Trace
    settings: SimulationSettings
    seed: int = 0
    compare: Comparison | None = None


def _parse_duration(text: str) -> int:
    try:
        return parse_duration(text)
    except DurationError as error:
        raise typer.BadParameter(str(error)) from error


@with_common_options
def simulate(  # noqa: PLR0913 - the options are declared here only
    options: CommonOptions,
    *,
    until: Annotated[
        int | None, typer.Option(parser=_parse_duration, metavar="TIME", help="Stop at this virtual time.")
    ] = None,
    runtime: Annotated[
        int | None,
        typer.Option(
            parser=_parse_duration, metavar="TIME", help="Run time of jobs without an annotation; by default 10m."
        ),
    ] = None,
    writes: Annotated[
        int | None, typer.Option(min=0, help="API writes per second; 0 for no limit. By default patches.perSecond.")
    ] = None,
    status_period: Annotated[
        int | None,
        typer.Option(
            parser=_parse_duration, metavar="TIME", help="Interval of the clusters' status updates; by default 10s."
        ),
    ] = None,
    compare: Annotated[Comparison | None, typer.Option(help="Also simulate this kind of admission.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the comparison.")] = 0,
) -> None:
    """Simulate jobs on virtual time."""
    if options.kubeconfig or options.context or options.configuration:
        raise typer.BadParameter("simulate cannot read the live control plane; name files with -f")
    if not options.files:
        raise typer.BadParameter("name files with -f")
    trace_file = read_trace(options.files, now=options.now, runtime=_RUNTIME if runtime is None else runtime)
    options.print_notes(trace_file.notes)
    settings = SimulationSettings(
        writes_per_second=trace_file.writes_per_second if writes is None else writes,
        status_period=_STATUS_PERIOD if status_period is None else status_period,
        until=until,
    )
    _run(options, SimulationOptions(trace_file.trace, settings, seed, compare))


def _run(options: CommonOptions, simulation: SimulationOptions) -> None:
    with progress_bar("simulating") as watch:
        began = process_time()
        result = Simulation(simulation.trace, simulation.settings, watch=watch).run()
        took = process_time() - began
    if options.verbose:
        _print_cost(result, took)
    options.print_report(simulation_report(result, _compare_per_pod(simulation)), simulation_table)


def _compare_per_pod(simulation: SimulationOptions) -> PerPodReport | None:
    return (
        per_pod_report(admit_per_pod(simulation.trace, simulation.seed), simulation.seed)
        if simulation.compare
        else None
    )


def _print_cost(result: SimulationResult, cpu_seconds: float) -> None:
    cycles = f"{result.cycles} cycles" + (
        f", {1000 * cpu_seconds / result.cycles:.1f} ms each" if result.cycles else ""
    )
    sys.stderr.write(
        f"note: {seconds(result.ended_at)} s of virtual time took {cpu_seconds:.1f} s of CPU in {cycles}\n"
    )


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
