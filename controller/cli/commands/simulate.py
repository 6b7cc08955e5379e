"""The `simulate` command: runs the engine with submitted jobs on virtual time."""

import os
import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Annotated

import typer

from controller.cli.commands.options import CommonOptions, choice_parser, refuse_list_format, with_common_options
from controller.cli.errors import InputError
from controller.cli.render.output import progress_bar

if TYPE_CHECKING:
    from controller.simulator.comparison import VariantFigures
    from controller.simulator.simulation import SimulationResult
    from controller.simulator.trace import SimulationSettings, Trace

_RUNTIME = 600_000
_STATUS_PERIOD = 10_000
_MAX_PODS = 1_000_000
"""Of all jobs together, where each pod is simulated."""

# A line with only a backspace prevents the lines after it from being rewrapped.
HELP = """
Simulate jobs on virtual time and print statistics: waiting times, utilisation and fairness.

Files are those of plan. The annotation volcano-global.io/submit says how long after the start a job is submitted (at
the start if missing), and volcano-global.io/runtime how long it runs, by default spec.runningEstimate. Clusters, queues
and the VolcanoGlobalConfiguration do not change. Times are whole numbers with h, m, s or ms: 1h30m, 90s, 200ms.

\b
Examples:
  volcano-global simulate -f objects.yaml --until 8h
  volcano-global simulate -f objects.yaml -o json | jq .summary
  volcano-global simulate -f objects.yaml --compare per-pod
  volcano-global simulate -f objects.yaml --compare backfill --plot comparison.svg
  volcano-global simulate -f objects.yaml --writes 50
  volcano-global simulate -f objects.yaml --what-if cluster/member1.status.resourceSummary.allocatable.cpu=200
"""


class Comparison(StrEnum):
    """Alternatives that a simulation can be compared with."""

    PER_POD = "per-pod"
    BACKFILL = "backfill"


class RunTimeKnowledge(StrEnum):
    """What the engine knows about the run times of the jobs."""

    EXACT = "exact"
    UNKNOWN = "unknown"


def _parse_duration(text: str) -> int:
    from controller.simulator.trace import DurationError, parse_duration  # noqa: PLC0415 -- see options

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
            parser=_parse_duration,
            metavar="TIME",
            help="Run time of jobs without annotation and estimate; by default 10m.",
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
    run_times: Annotated[
        RunTimeKnowledge | None,
        typer.Option(
            parser=choice_parser(RunTimeKnowledge),
            metavar="KIND",
            help="Whether the engine knows the run times of jobs, for backfill: exact (the default) or unknown.",
        ),
    ] = None,
    compare: Annotated[
        Comparison | None,
        typer.Option(
            parser=choice_parser(Comparison),
            metavar="KIND",
            help="Also simulate this kind of admission: per-pod; or other ways to treat large jobs: backfill.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, writable=True, help="Draw the comparison of backfill as an SVG image."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the comparison.")] = 0,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=VALUE",
            help="Also simulate with a changed field, KIND/[NAMESPACE/]NAME.FIELD=VALUE, and compare; repeat it.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Simulate jobs on virtual time."""
    if options.kubeconfig or options.context or options.configuration:
        raise typer.BadParameter("simulate cannot read the live control plane; name files with -f")
    if not options.files:
        raise typer.BadParameter("name files with -f")
    if options.watch:
        raise typer.BadParameter("simulate runs once; remove --watch")
    if plot is not None and compare is not Comparison.BACKFILL:
        raise typer.BadParameter("--plot draws --compare backfill")
    if plot is not None and not plot.exists() and not os.access(plot.parent, os.W_OK):
        raise typer.BadParameter(f"cannot write {plot}: folder {plot.parent} does not exist or is not writable")
    refuse_list_format(options.output)
    from controller.cli.input.manifests import read  # noqa: PLC0415 -- see options
    from controller.cli.input.traces import read_trace  # noqa: PLC0415
    from controller.cli.input.what_if import Changes, parse_what_if  # noqa: PLC0415
    from controller.simulator.trace import SimulationSettings  # noqa: PLC0415

    changes = parse_what_if(what_if or ())
    trace_of = partial(
        read_trace,
        read(options.files),
        now=options.now,
        runtime=_RUNTIME if runtime is None else runtime,
        strict=options.strict,
    )
    trace_file = trace_of()
    changed = trace_of(changes=Changes(changes, options.now)) if changes else None
    options.print_notes((*trace_file.notes, *(changed.notes if changed else ())))
    settings = SimulationSettings(
        writes_per_second=trace_file.writes_per_second if writes is None else writes,
        status_period=_STATUS_PERIOD if status_period is None else status_period,
        knows_run_times=run_times is not RunTimeKnowledge.UNKNOWN,
        until=until,
    )
    from controller.cli.render.simulate import simulation_table, variant_chart  # noqa: PLC0415 -- see options
    from controller.cli.reports.simulate import simulation_report, with_backfill, with_summary_before  # noqa: PLC0415
    from controller.simulator.per_pod import admit_per_pod  # noqa: PLC0415

    trace = trace_file.trace if changed is None else changed.trace
    if compare is Comparison.PER_POD:
        _refuse_many_pods(trace)
    result = _run(options, trace, settings)
    per_pod = admit_per_pod(trace, seed, until) if compare is Comparison.PER_POD else None
    report = simulation_report(result, per_pod)
    if changed is not None:
        before = _run(options, trace_file.trace, settings)
        report = with_summary_before(report, before, [change.text for change in changes])
    if compare is Comparison.BACKFILL:
        variants = _compare_backfill(options, result, settings)
        report = with_backfill(report, variants)
        if plot is not None:
            _write(plot, variant_chart(variants))
    options.print_report(report, simulation_table)


def _refuse_many_pods(trace: "Trace") -> None:
    """Raise `InputError` if the jobs have more pods than can be simulated one by one."""
    from controller.cli.render.plan import object_path  # noqa: PLC0415 -- see options

    pods = [sum(pod_set.count for pod_set in submission.pods) for submission in trace.submissions]
    if sum(pods) > _MAX_PODS:
        most = max(pods)
        workload = trace.submissions[pods.index(most)].workload
        path = f"{workload.kind} {object_path(workload.namespace, workload.name)}"
        raise InputError(
            f"--compare per-pod: the jobs have {sum(pods):,} pods; at most {_MAX_PODS:,} are simulated one by one, "
            f"and {path} has {most:,}"
        )


def _compare_backfill(
    options: CommonOptions, result: "SimulationResult", settings: "SimulationSettings"
) -> "list[VariantFigures]":
    """Simulate the other ways to treat large jobs."""
    from controller.simulator.comparison import Variant, figures, variants  # noqa: PLC0415 -- see options

    return [
        figures(variant, result if variant is Variant.CONFIGURED else _run(options, trace, changed))
        for variant, trace, changed in variants(result.trace, settings)
    ]


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"cannot write {path}: {error.strerror}") from error


def _run(options: CommonOptions, trace: "Trace", settings: "SimulationSettings") -> "SimulationResult":
    """Simulate *trace* with a progress bar."""
    from controller.simulator.simulation import Simulation  # noqa: PLC0415 -- see options

    with progress_bar("simulating") as on_progress:
        began = process_time()
        result = Simulation(trace, settings, on_progress=on_progress).run()
        took = process_time() - began
    if options.verbose:
        _print_cost(result, took)
    return result


def _print_cost(result: "SimulationResult", cpu_seconds: float) -> None:
    from controller.simulator.trace import seconds  # noqa: PLC0415 -- see options

    cycles = f"{result.cycles} cycles" + (
        f", {1000 * cpu_seconds / result.cycles:.1f} ms each" if result.cycles else ""
    )
    sys.stderr.write(
        f"note: {seconds(result.ended_at)} s of virtual time took {cpu_seconds:.1f} s of CPU in {cycles}\n"
    )
