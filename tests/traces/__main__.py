"""Development tool: prints a generated load as manifests, or plots a simulation.

python -m tests.traces generate philly --jobs 500 > philly.yaml
python -m tests.traces plot philly.yaml shares.png
"""

import argparse
import json
import sys
from pathlib import Path

import yaml

from controller.cli.input.manifests import read
from controller.cli.input.traces import read_trace
from controller.simulator.simulation import Simulation
from tests.traces.load import manifests
from tests.traces.load_shapes import LoadShape, SizeError, generate_load
from tests.traces.plot import PlotError, TimeSeries, check_plot, write_plot

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_SIZES = {
    "jobs": "number of jobs",
    "queues": "number of queues",
    "clusters": "number of clusters",
    "load": "load in percent of the clusters' capacity",
}
_RUNTIME = 600_000


def generate(options: argparse.Namespace) -> None:
    """Print the manifests of a load."""
    sizes = {name: getattr(options, name) for name in _SIZES}
    items = list(manifests(generate_load(LoadShape(options.shape), options.seed, **sizes)))
    if options.output == "json":
        json.dump({"apiVersion": "v1", "kind": "List", "items": items}, sys.stdout, indent=2)
    else:
        yaml.dump_all(items, sys.stdout, Dumper=_DUMPER, sort_keys=False)


def plot(options: argparse.Namespace) -> None:
    """Simulate the jobs of a file and plot usage and pending jobs."""
    check_plot(options.plot)
    series, trace = TimeSeries(), read_trace(read([str(options.file)]), now=0, runtime=_RUNTIME).trace
    write_plot(series, Simulation(trace, observe=series.observe).run(), options.plot)


def main(arguments: list[str] | None = None) -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="python -m tests.traces", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    generator = commands.add_parser("generate", help="print a load as manifests")
    generator.add_argument("shape", choices=[str(shape) for shape in LoadShape])
    for name, meaning in _SIZES.items():
        generator.add_argument(f"--{name}", type=int, help=meaning)
    generator.add_argument("--seed", type=int, default=0, help="the same seed generates the same load")
    generator.add_argument("-o", "--output", choices=["yaml", "json"], default="yaml")
    generator.set_defaults(run=generate)
    plotter = commands.add_parser("plot", help="simulate the jobs of a file and plot the result")
    plotter.add_argument("file", type=Path)
    plotter.add_argument("plot", type=Path, help="a .png or .svg file")
    plotter.set_defaults(run=plot)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except (SizeError, PlotError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
