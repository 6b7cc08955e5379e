"""Entry point of the command line: `volcano-global --help`."""

import sys
from collections.abc import Sequence
from io import TextIOWrapper

from controller.cli.app import app
from controller.cli.commands.options import LiveReadError
from controller.cli.input.manifests import InputError
from controller.cli.render.output import escape
from controller.cli.report.search import NotFoundError
from controller.simulator.plot import PlotError

_FAILED = 1
_BAD_INPUT = 2
_MAX_ERRORS = 50


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; print errors to stderr and exit with 1, or with 2 for bad input."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(arguments, prog_name="volcano-global")
    except InputError as error:
        _print_errors(*error.violations)
        sys.exit(_BAD_INPUT)
    except (PlotError, LiveReadError, NotFoundError, OSError) as error:
        _print_errors(str(error))
        sys.exit(_FAILED)


def _print_errors(*errors: str) -> None:
    """Print each error on a line of its own to stderr."""
    lines = [escape(error) for error in errors[:_MAX_ERRORS]]
    if len(errors) > _MAX_ERRORS:
        lines.append(f"and {len(errors) - _MAX_ERRORS} more errors")
    sys.stderr.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
