"""Entry point of the command line: `volcano-global --help`."""

import sys
from collections.abc import Sequence
from io import TextIOWrapper

import typer

from controller.cli.commands import explain, plan, replay, simulate
from controller.cli.commands.options import LiveReadError
from controller.cli.input.manifests import InputError
from controller.cli.input.snapshot import NotFoundError
from controller.cli.render.output import escape

_FAILED = 1
_BAD_INPUT = 2
_MAX_ERRORS = 50

# A line with only a backspace prevents the lines after it from being rewrapped.
_ABOUT = """
Queues, priorities and fair shares for batch and AI workloads that Karmada distributes over clusters.

Every command reads files (-f) or, without them, the live control plane; replay reads decision logs of the controller.
No command writes to the control plane.

\b
Examples:
  volcano-global plan -f objects.yaml       what is admitted next, and where
  volcano-global pending --queue research   what waits in a queue, and why
  volcano-global explain job train -n ml    why a job waits, and remedies

\b
Exit codes:
  0  success
  1  the command failed
  2  bad input; the message names the file, the document and the field
"""

app = typer.Typer(
    help=_ABOUT, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False
)
for name, command, help_text, summary in (
    ("plan", plan.plan, plan.PLAN_HELP, "Plan one scheduling cycle and print it."),
    ("queues", plan.queues, plan.QUEUES_HELP, "Print the queue hierarchy and its usage."),
    ("pending", plan.pending, plan.PENDING_HELP, "Print pending workloads and their reasons."),
    ("clusters", plan.clusters, plan.CLUSTERS_HELP, "Print the member clusters and their capacity."),
    ("simulate", simulate.simulate, simulate.HELP, "Simulate jobs on virtual time and print statistics."),
    ("replay", replay.replay_command, replay.HELP, "Replay a decision log and compare the decisions."),
):
    app.command(name, help=help_text, short_help=summary)(command)
app.add_typer(explain.app, name="explain")


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
    except (LiveReadError, NotFoundError, OSError) as error:
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
