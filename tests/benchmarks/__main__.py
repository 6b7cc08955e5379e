"""Runs benchmarks: ``make bench``, ``make bench ARGS="--only FAMILY"``, ``make bench ARGS=--quick``."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.benchmarks import (
    admission,
    backfill,
    forecast,
    hyperjob,
    kueue,
    million,
    overhead,
    plan,
    restart,
    review_growth,
    webhook,
)
from tests.benchmarks.figures import Figure, show, write

Measure = Callable[..., list[Figure]]

FAMILIES: Mapping[str, Measure] = {
    "admission": admission.measure,
    "backfill": backfill.measure,
    "restart": restart.measure,
    "plan": plan.measure,
    "webhook": webhook.measure,
    "reviews": review_growth.measure,
    "hyperjob": hyperjob.measure,
    "forecast": forecast.measure,
    "data": overhead.measure_data,
    "console": overhead.measure_console,
    "kueue": kueue.measure,
    "million": million.measure,
}
ON_REQUEST = {"kueue", "million"}
"""Families that run only where ``--only`` names them."""
SIZED = {"kueue", "million", "restart"}
"""Families with a size."""
REPORT = Path(__file__).parents[2] / "build" / "bench.json"


def main() -> None:
    """Run the selected families, print a table and write it as JSON."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", choices=sorted(FAMILIES), action="append", help="this family; may be repeated")
    parser.add_argument("--quick", action="store_true", help="all of it small: does it work at all?")
    parser.add_argument(
        "--size",
        type=int,
        help="kueue: queues, 30 or 1000; million: pending workloads, 100000 or 1000000; restart: any number of them",
    )
    arguments = parser.parse_args()
    figures: list[Figure] = []
    for name in arguments.only or (name for name in FAMILIES if name not in ON_REQUEST):
        size = {"size": arguments.size} if name in SIZED and arguments.size else {}
        figures.extend(FAMILIES[name](quick=arguments.quick, **size))
    show(figures)
    write(figures, REPORT)
    print(f"written to {REPORT.relative_to(Path.cwd()) if REPORT.is_relative_to(Path.cwd()) else REPORT}")


if __name__ == "__main__":
    main()
