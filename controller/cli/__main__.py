"""Run the operators' commands: `volcano-global --help`."""

import sys
from collections.abc import Sequence
from io import TextIOWrapper

from controller.cli.app import app
from controller.cli.manifests import InputError
from controller.cli.options import LiveReadError
from controller.cli.output import escape
from controller.cli.report.search import NotFoundError
from controller.simulator.drawing import DrawingError

_FAILED = 1
_BAD_INPUT = 2
_MAX_PROBLEMS = 50


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; what goes wrong is a sentence on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(arguments, prog_name="volcano-global")
    except InputError as error:
        _print_errors(*error.problems)
        sys.exit(_BAD_INPUT)
    except (DrawingError, LiveReadError, NotFoundError, OSError) as error:
        _print_errors(str(error))
        sys.exit(_FAILED)


def _print_errors(*problems: str) -> None:
    """Write what is wrong to stderr, a line for each problem."""
    lines = [escape(problem) for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"and {len(problems) - _MAX_PROBLEMS} more problems")
    sys.stderr.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
