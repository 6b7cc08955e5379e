"""The command that plays jobs against the engine on virtual time."""

import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import process_time
from typing import Annotated

import typer
import yaml

from controller.cli.options import CommonOptions
from controller.cli.output import Format, print_text
from controller.cli.progress_bar import progress_bar
from controller.cli.report.simulation import PerPodReport, per_pod_report, simulation_report
from controller.cli.simulation_table import simulation_table
from controller.cli.trace_file import read_trace
from controller.simulator.drawing import draw, must_be_drawable
from controller.simulator.driver import Outcome, Simulation
from controller.simulator.generators.load import Load, as_trace
from controller.simulator.generators.manifests import manifests
from controller.simulator.generators.shapes import Shape, SizeError, make
from controller.simulator.perpod import admit_per_pod
from controller.simulator.series import Series
from controller.simulator.spans import SpanError, parse_span, seconds
from controller.simulator.trace import Tempo, Trace

_RUNTIME = 600_000
_STATUS_PERIOD = 10_000
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Comparison(StrEnum):
    """What a simulation can be compared with."""

    PER_POD = "per-pod"


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """What is played, and how."""

    trace: Trace
    tempo: Tempo
    seed: int = 0
    compare: Comparison | None = None
    plot: Path | None = None


def _parse_duration(text: str) -> int:
    try:
        return parse_span(text)
    except SpanError as error:
        raise typer.BadParameter(str(error)) from error


def simulate(  # noqa: PLR0913 - the one place where its options stand
    source: CommonOptions,
    *,
    until: Annotated[
        int | None, typer.Option(parser=_parse_duration, metavar="TIME", help="Stop looking then.")
    ] = None,
    runtime: Annotated[
        int | None,
        typer.Option(
            parser=_parse_duration, metavar="TIME", help="Run time of jobs that do not say theirs; by default 10m."
        ),
    ] = None,
    writes: Annotated[
        int | None, typer.Option(min=0, help="Writes a second; 0: they cost nothing. By default as patches.perSecond.")
    ] = None,
    status_period: Annotated[
        int | None,
        typer.Option(
            parser=_parse_duration, metavar="TIME", help="How often clusters write their summaries; by default 10s."
        ),
    ] = None,
    generate: Annotated[Shape | None, typer.Option(help="Make up a load of this shape instead of reading one.")] = None,
    jobs: Annotated[int | None, typer.Option(help="How many jobs to make up.")] = None,
    queues: Annotated[int | None, typer.Option(help="For how many queues.")] = None,
    clusters: Annotated[int | None, typer.Option(help="On how many clusters.")] = None,
    load: Annotated[int | None, typer.Option(help="What comes, in percent of what the clusters can run.")] = None,
    seed: Annotated[int, typer.Option(help="What is drawn by lot; the same seed draws the same.")] = 0,
    dump: Annotated[bool, typer.Option("--dump", help="Print what was made up as manifests instead.")] = False,
    compare: Annotated[Comparison | None, typer.Option(help="Say how many jobs finish if admitted so.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw shares and waiting, .png or .svg.")] = None,
) -> None:
    """Play jobs on virtual time."""
    if plot is not None:
        must_be_drawable(plot)
    made = _generate_load(source, generate, seed, jobs=jobs, queues=queues, clusters=clusters, load=load)
    if dump:
        print_text(_dump_manifests(made, source.output))
        return
    trace, limit = _load_trace(source, made, _RUNTIME if runtime is None else runtime)
    tempo = Tempo(
        writes_per_second=limit if writes is None else writes,
        status_period=_STATUS_PERIOD if status_period is None else status_period,
        until=until,
    )
    _run(source, SimulationOptions(trace, tempo, seed, compare, plot))


def _generate_load(source: CommonOptions, shape: Shape | None, seed: int, **sizes: int | None) -> Load | None:
    """Return the load that is to be made up, ``None`` where files are to be read."""
    if source.kubeconfig or source.context or source.configuration:
        raise typer.BadParameter("a simulation reads files, not the live control plane; name them with -f")
    if (shape is None) == (not source.files):
        raise typer.BadParameter("name files with -f, or a shape with --generate; one of them")
    if shape is None:
        given = [name for name, size in sizes.items() if size is not None]
        if given:
            raise typer.BadParameter(f"--{given[0]} is for what --generate makes up")
        return None
    try:
        return make(shape, seed, **sizes)
    except SizeError as error:
        raise typer.BadParameter(str(error)) from error


def _load_trace(source: CommonOptions, made: Load | None, runtime: int) -> tuple[Trace, int]:
    """Return what is to be played, and how many writes a second its configuration allows."""
    if made is not None:
        return as_trace(made, start=source.now), 0
    read = read_trace(source.files, now=source.now, runtime=runtime)
    source.remark(read.notes)
    return read.trace, read.writes_per_second


def _dump_manifests(made: Load | None, output: Format) -> str:
    if made is None:
        raise typer.BadParameter("--dump prints what --generate makes up")
    objects = manifests(made)
    if output is Format.JSON:
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=2)
    text: str = yaml.dump_all(objects, Dumper=_DUMPER, sort_keys=False)
    return text.rstrip()


def _run(source: CommonOptions, play: SimulationOptions) -> None:
    series = Series() if play.plot else None
    with progress_bar("simulating") as watch:
        began = process_time()
        outcome = Simulation(play.trace, play.tempo, watch=watch, series=series).run()
        took = process_time() - began
    if source.verbose:
        _print_cost(outcome, took)
    if play.plot is not None and series is not None:
        draw(series, outcome, play.plot)
    source.answer(simulation_report(outcome, _compare_per_pod(play)), simulation_table)


def _compare_per_pod(play: SimulationOptions) -> PerPodReport | None:
    return per_pod_report(admit_per_pod(play.trace, play.seed), play.seed) if play.compare else None


def _print_cost(outcome: Outcome, took: float) -> None:
    cycles = f"{outcome.cycles} cycles" + (f", {1000 * took / outcome.cycles:.1f} ms each" if outcome.cycles else "")
    sys.stderr.write(f"note: {seconds(outcome.ended_at)} s of virtual time took {took:.1f} s of CPU in {cycles}\n")
