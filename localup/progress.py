"""Runs long commands with a progress line, and reports failures with their output."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from localup.processes import ProcessError, spawn, tail, terminate

_TERMINAL_SECONDS: Final = 0.5
_PLAIN_SECONDS: Final = 15.0


class StepError(Exception):
    """A setup step failed; the message names the step, the cause and a remedy."""


@dataclass(frozen=True, slots=True)
class Step:
    """Purpose of a command.

    Attributes:
        title: The description shown to the user.
        log: The file for its output.
        remedy: What the user should do if it fails.
        environment: Its environment; by default the current one.
        cwd: Its working directory.
    """

    title: str
    log: Path
    remedy: str
    environment: Mapping[str, str] | None = None
    cwd: Path | None = None


def run(command: Sequence[str | Path], step: Step, *, out: TextIO | None = None) -> None:
    """Run *command* to its end and show its progress."""
    line = _ProgressLine(step.title, out or sys.stdout)
    try:
        process = spawn(command, log=step.log, environment=step.environment, cwd=step.cwd)
    except ProcessError as error:
        raise StepError(f"{step.title} failed: {error}\n{step.remedy}") from error
    try:
        _wait(process, lambda: line.update(_last_line(step.log)), every=line.seconds)
    except BaseException:
        line.close("interrupted")
        terminate(process, grace_seconds=0)
        raise
    if process.returncode:
        line.close("failed")
        raise StepError(f"{step.title} failed; the last lines of its output:\n{tail(step.log)}\n{step.remedy}")
    line.close("done")


class _ProgressLine:
    """Progress line that is rewritten on terminals and printed periodically elsewhere."""

    def __init__(self, title: str, out: TextIO) -> None:
        self._title = title
        self._out = out
        self._began = time.monotonic()
        self._terminal = out.isatty()
        self.seconds = _TERMINAL_SECONDS if self._terminal else _PLAIN_SECONDS
        self._write("…" if self._terminal else "started")

    def update(self, detail: str) -> None:
        self._write(f"{self._elapsed()}  {detail}")

    def close(self, outcome: str) -> None:
        self._write(f"{outcome} after {self._elapsed()}")
        if self._terminal:
            print(file=self._out, flush=True)

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._began:.0f} s"

    def _write(self, text: str) -> None:
        line = f"{self._title}: {text}"
        if self._terminal:
            width = os.get_terminal_size(self._out.fileno()).columns - 1
            print(f"\r\x1b[K{line[:width]}", end="", file=self._out, flush=True)
        else:
            print(line, file=self._out, flush=True)


def _wait(process: subprocess.Popen[bytes], update: Callable[[], None], *, every: float) -> None:
    while True:
        try:
            process.wait(every)
        except subprocess.TimeoutExpired:
            update()
        else:
            return


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 500))
        lines = file.read().decode(errors="replace").splitlines()
    return lines[-1] if lines else ""
