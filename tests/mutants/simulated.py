"""Reports which mutants the simulation finds: `python -m tests.mutants.simulated [--hours 24] [MUTANT ...]`."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.runner import MutatedTree

_ACTIVITY = 12
"""Minutes of each hour with operations and faults; most mutants are found within the first ones."""


def first_violation(tree: MutatedTree, *, seed: int, hours: int) -> str:
    """Return the first violation in simulated *hours*, each from a seed of its own, empty if there is none."""
    flags = ("--seed", str(seed), "--hours", "1", "--runs", str(hours), "--shrink", "0", "--activity", str(_ACTIVITY))
    command = [sys.executable, "-m", "tests.deterministic", "--jobs", "1", *flags]
    environment = {**os.environ, "PYTHONPATH": str(tree.folder)}
    done = subprocess.run(command, cwd=tree.folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    ran = done.stdout.count("hour 1")
    lines = [line.strip() for line in done.stdout.splitlines() if line.startswith("  ") and " s: " in line]
    return f"hour {ran}, {lines[0] if lines else (done.stderr.splitlines() or ['it ended'])[-1]}"


def main(arguments: Sequence[str]) -> int:
    """Print one line for each mutant; return 1 if one was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.simulated", description=__doc__)
    parser.add_argument("mutants", nargs="*", metavar="MUTANT", help="names in the catalogue; default: all")
    parser.add_argument("--hours", type=int, default=24, help="simulated hours for each mutant")
    parser.add_argument("--seed", type=int, default=4, help="seed of the first hour; each further hour has the next")
    options = parser.parse_args(arguments)
    chosen: list[Mutant] = [mutant for mutant in MUTANTS if mutant.name in options.mutants or not options.mutants]
    unseen = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = MutatedTree(Path(folder))
        for mutant in chosen:
            tree.apply(mutant)
            try:
                violation = first_violation(tree, seed=options.seed, hours=options.hours)
            finally:
                tree.revert(mutant)
            unseen += not violation
            print(f"{mutant.name}: {violation[:200] or 'not found'}", flush=True)  # noqa: T201 -- the output of a command
    print(f"{len(chosen) - unseen} of {len(chosen)} found within {options.hours} simulated hours")  # noqa: T201
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
