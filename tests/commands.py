"""Runs the commands of `certs` and `install` in the test's process, which is faster than starting Python.

Also reads numbers in the arguments of the commands of the tests.
"""

import argparse
import contextlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a command, which logs to stdout."""

    returncode: int
    stdout: str
    stderr: str

    def logged(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.stdout.splitlines()]
        return [line for line in lines if line["event"] == event and fields.items() <= line.items()]


def run(main: Callable[[Sequence[str]], None], *arguments: object) -> CommandResult:
    """Run *main* with *arguments*."""
    stdout, stderr, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as exit_:
            if isinstance(exit_.code, str):  # a message, which the interpreter prints to stderr
                stderr.write(f"{exit_.code}\n")
            code = 1 if isinstance(exit_.code, str) else exit_.code or 0
        finally:
            structlog.reset_defaults()
    return CommandResult(code, stdout.getvalue(), stderr.getvalue())


def positive(text: str) -> int:
    """Return the number in an argument; raise an error of argparse unless it is one or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of one or more")
    return int(text)
