"""Runs `python -m certs` in the test process, which is faster than starting Python."""

import contextlib
import io
from dataclasses import dataclass

import structlog

from certs.__main__ import main


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a command."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments) -> CommandResult:
    """Run `python -m certs` and return its exit code and output."""
    stdout, stderr, code = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as exit_:
            code = exit_.code
        finally:
            structlog.reset_defaults()
    if isinstance(code, str):  # a message, which the interpreter prints to stderr
        return CommandResult(1, stdout.getvalue(), f"{stderr.getvalue()}{code}\n")
    return CommandResult(code or 0, stdout.getvalue(), stderr.getvalue())
