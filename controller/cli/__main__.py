"""Entry point of the command line: `volcano-global --help`, also `kubectl volcano-global`."""

import gc
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from controller.cli.commands import completion, data, explain, history, plan, replay, simulate
from controller.cli.commands.options import LiveReadError
from controller.cli.errors import InputError, NotFoundError
from controller.cli.render.output import escape

_FAILED = 1
_BAD_INPUT = 2
_INTERRUPTED = 130
_MAX_ERRORS = 50

#: Set by the script of `completion` while a shell asks for words.
_COMPLETION_VARIABLE = "_VOLCANO_GLOBAL_COMPLETE"

# A line with only a backspace prevents the lines after it from being rewrapped.
_ABOUT = """
Queues, priorities and fair shares for batch and AI workloads that Karmada distributes over clusters.

Every command reads files (-f) or, without them, the live control plane; replay and history read decision logs of the
controller. No command writes to the control plane.

\b
Examples:
  volcano-global plan -f objects.yaml       what is admitted next, and where
  volcano-global pending --queue research   what waits in a queue, and why
  volcano-global explain job ml/train       why a job waits, and remedies

\b
Exit codes:
  0  success
  1  the command failed
  2  bad input; the message names the file, the document and the field
"""

#: An unset `--help` of a group before the command is coerced like any value, for which typer imports pydantic (0.15 s).
_NO_HELP = {"help": False}

app = typer.Typer(
    help=_ABOUT,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "default_map": {**_NO_HELP, "explain": _NO_HELP},
    },
)
for name, command, help_text, summary in (
    ("plan", plan.plan, plan.PLAN_HELP, "Plan one scheduling cycle and print it."),
    ("queues", plan.queues, plan.QUEUES_HELP, "Print queues and their current usage."),
    ("pending", plan.pending, plan.PENDING_HELP, "Print pending workloads and their reasons."),
    ("top", plan.top, plan.TOP_HELP, "Print the admitted workloads with the highest usage."),
    ("clusters", plan.clusters, plan.CLUSTERS_HELP, "Print the member clusters and their capacity."),
    ("data", data.data, data.HELP, "Print data sets, the clusters that hold them, and their claims."),
    ("simulate", simulate.simulate, simulate.HELP, "Simulate jobs on virtual time and print statistics."),
    ("history", history.history, history.HELP, "Print the recorded decisions about a job."),
    ("replay", replay.replay_command, replay.HELP, "Replay a decision log and compare the decisions."),
    ("completion", completion.completion, completion.HELP, "Print the completion script of a shell."),
):
    app.command(name, help=help_text, short_help=summary)(command)
app.add_typer(explain.app, name="explain")


def _print_version(value: bool) -> None:  # noqa: FBT001 -- typer calls it
    if value:
        from importlib.metadata import version  # noqa: PLC0415 -- rarely needed

        sys.stdout.write(f"volcano-global {version('volcano-global')}\n")
        raise typer.Exit


@app.callback()
def _main(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Parse the options before the command."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; print errors to stderr and exit with 1, or with 2 for bad input."""
    if _COMPLETION_VARIABLE in os.environ:
        from typer._completion_classes import completion_init  # noqa: PLC0415 -- typer has no public name

        completion_init()
    # Reading many objects creates few cycles; frequent collections would take a third of the time.
    gc.set_threshold(100_000, 50, 1000)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(arguments, prog_name=_program())
    except InputError as error:
        _print_errors(*error.violations)
        sys.exit(_BAD_INPUT)
    except (LiveReadError, NotFoundError) as error:
        _print_errors(*str(error).splitlines())
        sys.exit(_FAILED)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        _print_errors(f"{name}{(error.strerror or 'input or output failed').lower()}")
        sys.exit(_FAILED)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _open_closed_streams() -> None:
    """Replace standard streams that are closed at the start, which Python sets to ``None``, by the null device."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 -- open until the end


def _program() -> str:
    """Return the name of this program in its help: that of the kubectl plugin, if it was started as one."""
    return "kubectl volcano-global" if Path(sys.argv[0]).name.startswith("kubectl-") else "volcano-global"


def _print_errors(*errors: str) -> None:
    """Print each error on a line of its own to stderr."""
    lines = [escape(error) for error in errors[:_MAX_ERRORS]]
    more = len(errors) - _MAX_ERRORS
    if more > 0:
        lines.append(f"and {more} more error{'' if more == 1 else 's'}")
    sys.stderr.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
