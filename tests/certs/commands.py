"""The commands of operators, run in the test's own process: starting Python would take longer than they do."""

import contextlib
import io
from dataclasses import dataclass

import structlog

from certs.__main__ import main


@dataclass(frozen=True)
class CommandResult:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments) -> CommandResult:
    """Run `python -m certs` and return what it said."""
    said, complained, code = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code
        finally:
            structlog.reset_defaults()
    if isinstance(code, str):  # a sentence, as the interpreter shows it
        return CommandResult(1, said.getvalue(), f"{complained.getvalue()}{code}\n")
    return CommandResult(code or 0, said.getvalue(), complained.getvalue())
