"""The `replay` command: replays decision logs and compares the decisions."""

from typing import Annotated

import typer

from controller.cli.commands.options import Output, print_report, refuse_empty_names, refuse_list_format
from controller.cli.render.output import Format

# A line with only a backspace prevents the lines after it from being rewrapped.
HELP = """
Replay a decision log: pass its inputs to a new engine, and compare each decision with the recorded one.

The controller writes the decision log to the file of its flag --decision-log; rotated files are FILE.1, FILE.2 and
so on. Each file begins with a checkpoint, so each is replayed separately. An incomplete last line, for example after a
crash, is ignored and reported.

\b
Examples:
  volcano-global replay decisions.jsonl
  volcano-global replay decisions.jsonl.* decisions.jsonl -o json
  volcano-global replay decisions.jsonl --workload ml/train   also print the decisions about a workload
  kubectl -n karmada-system exec deployment/volcano-global-controller -- cat /var/lib/volcano-global/decisions.jsonl \\
    | volcano-global replay -

\b
Exit codes:
  0  all decisions are the same
  1  some decisions differ, or the file was altered; both decisions are printed
  2  bad input: the file is missing or a line is invalid; the message names the line
"""


def replay_command(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Decision logs, each replayed separately; - for standard input."),
    ],
    workload: Annotated[
        str | None,
        typer.Option("--workload", "-w", metavar="NS/NAME", help="Also print all decisions about this workload."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Replay decision logs."""
    from controller.cli.render.replay import replay_table  # noqa: PLC0415 -- see options
    from controller.cli.reports.replay import replay_files  # noqa: PLC0415

    refuse_list_format(output)
    refuse_empty_names(files)
    summary = replay_files(files, workload)
    print_report(summary, output, replay_table)
    if not summary.same:
        raise typer.Exit(1)
