"""Simulates the whole system for hours from seeds: `python -m tests.deterministic --help`."""

import argparse
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

import structlog

from tests.deterministic import faults, operations
from tests.deterministic.operations import Operation
from tests.deterministic.shrinking import Shrinker
from tests.deterministic.simulation import HOUR, Result, run


def main(arguments: Sequence[str]) -> int:
    """Run the simulations; return 1 after a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.deterministic", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run; each further run has the next one")
    parser.add_argument("--hours", type=int, default=1, help="simulated hours of a run")
    parser.add_argument("--runs", type=int, default=1, help="number of runs")
    parser.add_argument(
        "--activity", type=float, default=30, metavar="MINUTES", help="part of each hour with operations"
    )
    parser.add_argument(
        "--shrink", type=int, default=40, metavar="ATTEMPTS", help="attempts to shrink a failing history"
    )
    parser.add_argument("--operations", type=Path, metavar="FILE", help="replay a shrunken history")
    parser.add_argument("--log", action="store_true", help="print the log of the processes")
    options = parser.parse_args(arguments)
    level = logging.INFO if options.log else logging.CRITICAL
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))
    if options.operations is not None:
        return _replay(options.operations)
    total: Counter[str] = Counter()
    began, hours = time.process_time(), 0.0
    for seed in range(options.seed, options.seed + options.runs):
        result = run(seed, options.hours, active=options.activity * 60, progress=_show_hour)
        total += result.occurrences
        hours += result.simulated_seconds / HOUR
        seconds = time.process_time() - began
        found = f"{len(result.violations)} violations" if result.violations else "no violation"
        _say(f"seed {seed}: {found}, {result.requests} requests, digest {result.digest}")
        if result.violations:
            _report(result, options)
            _print_occurrences(total)
            return 1
        _say(
            f"{hours:.1f} simulated hours in {seconds:.0f} s of one core: {hours * HOUR / seconds:.0f} times real time"
        )
    _print_occurrences(total)
    return 0


def _report(result: Result, options: argparse.Namespace) -> None:
    for violation in result.violations[:10]:
        _say(f"  {violation}")
    flags = f"--seed {result.seed} --hours {options.hours} --activity {options.activity:g}"
    _say(f"replay: python -m tests.deterministic {flags}")
    if options.shrink:
        _say(f"shrinking {len(result.operations)} operations ...")
        shrinker = Shrinker(result, attempts=options.shrink)
        shrinker.shrink()
        for operation in shrinker.operations:
            _say(f"  {operation.at:10.3f} s  {operation.name}  {operation.draw}")
        for violation in shrinker.violations[:10]:
            _say(f"  {violation}")
        file = Path("build") / f"simulation-{result.seed}.json"
        file.parent.mkdir(exist_ok=True)
        head = {"seed": shrinker.seed, "hours": shrinker.hours, "calm": shrinker.calm}
        file.write_text(json.dumps({**head, "operations": [astuple(item) for item in shrinker.operations]}))
        _say(f"replay the {len(shrinker.operations)} operations: python -m tests.deterministic --operations {file}")


def _replay(file: Path) -> int:
    read = json.loads(file.read_text())
    chosen = [Operation(*item) for item in read["operations"]]
    result = run(read["seed"], read["hours"], chosen=chosen, calm=read["calm"])
    for violation in result.violations:
        _say(f"  {violation}")
    _say(f"{len(result.violations)} violations, digest {result.digest}")
    return 1 if result.violations else 0


def _print_occurrences(total: Counter[str]) -> None:
    groups = {
        "faults of requests": faults.REQUEST_FAULTS,
        "faults of watches": faults.WATCH_FAULTS,
        "faults of processes, servers and objects": faults.SYSTEM_FAULTS,
        "operators and clusters": operations.OPERATORS,
        "tenants": operations.TENANTS,
    }
    for title, names in groups.items():
        _say(f"{title}: {', '.join(f'{name} {total[name]}' for name in names)}")


def _show_hour(hour: int, _: Counter[str]) -> None:
    _say(f"  hour {hour}", end="\r")


def _say(text: str, *, end: str = "\n") -> None:
    print(text, end=end, flush=True)  # noqa: T201 -- the output of a command


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
