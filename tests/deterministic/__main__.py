"""Simulates the whole system for hours from seeds: `python -m tests.deterministic --help`."""

import argparse
import json
import logging
import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from tests.commands import positive
from tests.deterministic import faults, operations, other_clients
from tests.deterministic.operations import Operation
from tests.deterministic.shrinking import Shrinker
from tests.deterministic.simulation import HOUR, Result, run

_GROUPS = {
    "faults of requests": tuple(faults.REQUEST_FAULTS),
    "faults of watches": faults.WATCH_FAULTS,
    "faults of processes, servers and objects": tuple(faults.SYSTEM_FAULTS),
    "operators and clusters": tuple(operations.OPERATORS),
    "tenants": tuple(operations.TENANTS),
    "other clients": tuple(other_clients.ACTIONS),
}


def main(arguments: Sequence[str]) -> int:
    """Run the simulations; return 1 after a violation."""
    parser = _parser()
    options = parser.parse_args(arguments)
    _configure_log(options.log)
    if options.operations is not None:
        try:
            history = json.loads(options.operations.read_text())
            chosen = [Operation(*item) for item in history["operations"]]
        except (OSError, ValueError, LookupError, TypeError) as error:
            parser.error(f"argument --operations: {options.operations} is not a shrunken history: {error}")
        return _replay(history, chosen)
    total: Counter[str] = Counter()
    hours, failed = 0.0, list[Result]()
    began = time.monotonic()
    try:
        with _results(options) as results:
            for result, seconds in results:
                total += result.occurrences
                hours += result.simulated_seconds / HOUR
                _say_result(result, seconds, options)
                if result.violations:
                    failed.append(result)
                    if not options.keep_going:
                        break
        _say(f"{hours:.1f} simulated hours in {time.monotonic() - began:.0f} s, {len(failed)} runs with violations")
        if failed and failed[0].operations and options.shrink:
            _shrink(failed[0], options)
    except KeyboardInterrupt:
        _say("interrupted")
        _print_occurrences(total)
        return 130
    _print_occurrences(total)
    counted = [name for names in _GROUPS.values() for name in names if name not in other_clients.ACTIONS]
    rare = [name for name in counted if total[name] < options.least * hours / 1000]
    if rare:
        _say(f"fewer than {options.least} in 1,000 hours: {', '.join(rare)}")
    return 1 if failed or rare else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.deterministic", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run; each further run has the next one")
    parser.add_argument("--hours", type=positive, default=1, help="simulated hours of a run")
    parser.add_argument("--runs", type=positive, default=1, help="number of runs")
    parser.add_argument(
        "--jobs", type=positive, default=os.cpu_count() or 1, help="processes; one for each core by default"
    )
    parser.add_argument("--keep-going", action="store_true", help="carry out all runs, also after a violation")
    parser.add_argument(
        "--least", type=int, default=0, metavar="COUNT", help="occurrences of each fault and operation in 1,000 hours"
    )
    parser.add_argument(
        "--activity", type=float, default=30, metavar="MINUTES", help="part of each hour with operations"
    )
    parser.add_argument(
        "--shrink", type=int, default=40, metavar="ATTEMPTS", help="attempts to shrink the first failing history"
    )
    parser.add_argument("--operations", type=Path, metavar="FILE", help="replay a shrunken history")
    parser.add_argument("--log", action="store_true", help="print the log of the processes")
    return parser


def _configure_log(is_printed: bool) -> None:  # noqa: FBT001 -- a pool passes no keywords
    level = logging.INFO if is_printed else logging.CRITICAL
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))
    # A killed process leaves tasks that never began.
    warnings.filterwarnings("ignore", "coroutine '.*' was never awaited", RuntimeWarning)


@contextmanager
def _results(options: argparse.Namespace) -> Iterator[Iterator[tuple[Result, float]]]:
    """Carry out the runs, in several processes if there are several runs; all end with this context."""
    seeds = range(options.seed, options.seed + options.runs)
    simulate = partial(_simulate, hours=options.hours, active=options.activity * 60)
    jobs = min(options.jobs, options.runs)
    if jobs == 1:
        yield map(simulate, seeds)
        return
    # A run leaves caches of a gigabyte, so each one has a new process.
    with multiprocessing.Pool(jobs, _begin_worker, (options.log,), maxtasksperchild=1) as pool:
        yield pool.imap_unordered(simulate, seeds)


def _begin_worker(is_log_printed: bool) -> None:  # noqa: FBT001 -- a pool passes no keywords
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _configure_log(is_log_printed)


def _simulate(seed: int, *, hours: int, active: float) -> tuple[Result, float]:
    """Return the result of one run, and the seconds of processor time that it took.

    An exception of the simulation itself counts as a violation, so that the other runs continue.
    """
    began = time.process_time()
    try:
        result = run(seed, hours, active=active, progress=lambda hour, _: _say(f"  seed {seed} hour {hour}", end="\r"))
    except Exception as error:  # noqa: BLE001 -- printed with its traceback, and the command fails
        traceback.print_exc()
        result = Result(seed, "none", [f"the simulation failed: {error!r}"], Counter(), (), 0, 0, 0)
    return result, time.process_time() - began


def _say_result(result: Result, seconds: float, options: argparse.Namespace) -> None:
    outcome = f"{len(result.violations)} violations" if result.violations else "no violation"
    speed = f"{result.simulated_seconds / max(seconds, 0.001):.0f} times real time"
    _say(f"seed {result.seed}: {outcome}, {result.requests} requests, {speed}, digest {result.digest}")
    for violation in result.violations[:10]:
        _say(f"  {violation}")
    if result.violations:
        flags = f"--seed {result.seed} --hours {options.hours} --activity {options.activity:g}"
        _say(f"replay: python -m tests.deterministic {flags}")


def _shrink(result: Result, options: argparse.Namespace) -> None:
    _say(f"shrinking {len(result.operations)} operations of seed {result.seed} ...")
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


def _replay(history: dict[str, Any], chosen: Sequence[Operation]) -> int:
    result = run(history["seed"], history["hours"], chosen=chosen, calm=history["calm"])
    for violation in result.violations:
        _say(f"  {violation}")
    _say(f"{len(result.violations)} violations, digest {result.digest}")
    return 1 if result.violations else 0


def _print_occurrences(total: Counter[str]) -> None:
    for title, names in _GROUPS.items():
        _say(f"{title}: {', '.join(f'{name} {total[name]}' for name in names)}")


def _say(text: str, *, end: str = "\n") -> None:
    print(text, end=end, flush=True)  # noqa: T201 -- the output of a command


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
