"""Development tool: prints a generated load as manifests, `python -m tests.traces philly --jobs 500 > philly.yaml`."""

import argparse
import sys

import yaml

from tests.commands import positive
from tests.traces.alibaba import alibaba_load
from tests.traces.helios import helios_load
from tests.traces.load import LoadSize, manifests
from tests.traces.philly import philly_load

SHAPES = {"philly": philly_load, "helios": helios_load, "alibaba": alibaba_load}
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_SIZES = {
    "jobs": "number of jobs",
    "queues": "number of queues",
    "clusters": "number of clusters",
    "load": "load in percent of the clusters' capacity",
    "seed": "the same seed generates the same load",
}


def main(arguments: list[str] | None = None) -> None:
    """Print the manifests of a load."""
    default = LoadSize()
    parser = argparse.ArgumentParser(prog="python -m tests.traces", description=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    for name, meaning in _SIZES.items():
        kind = int if name == "seed" else positive
        parser.add_argument(f"--{name}", type=kind, default=getattr(default, name), help=meaning)
    sizes = vars(parser.parse_args(arguments))
    load = SHAPES[sizes.pop("shape")](LoadSize(**sizes))
    yaml.dump_all(manifests(load), sys.stdout, Dumper=_DUMPER, sort_keys=False)


if __name__ == "__main__":
    main()
