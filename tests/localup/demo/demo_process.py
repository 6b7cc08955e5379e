"""Runs the demo as a process without a terminal and reads its output."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]

Start = Callable[..., subprocess.Popen[str]]


@contextmanager
def demo_starter(folder: Path) -> Iterator[Start]:
    """Yield a function that starts the demo with *folder* for temporary files; all demos are killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(*flags: str) -> subprocess.Popen[str]:
        # HOME is inherited, so that the cached programs are found.
        environment = os.environ | {"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "localup", "demo", *flags],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.wait()
            process.stdout.close()


def read_until(process, text):
    """Read the output of *process* up to a line that contains *text*."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"{text!r} was not printed:\n{''.join(lines)}")
