"""The `history` command: prints the recorded decisions about a job."""

import sys
from typing import Annotated

import typer

from controller.cli.commands.options import Output, parse_job, print_report, refuse_empty_names, refuse_list_format
from controller.cli.render.output import Format

# A line with only a backspace prevents the lines after it from being rewrapped.
HELP = """
Print the recorded decisions about a job, in the order of time: admissions, evictions, nominations, head reservations,
and changes of the pending reason. They are read from decision logs, which the controller writes to the file of its flag
--decision-log.

\b
Examples:
  volcano-global history ml/train -f decisions.jsonl
  volcano-global history train -n ml -f decisions.jsonl.1 -f decisions.jsonl -o json
  kubectl -n karmada-system exec deployment/volcano-global-controller -- cat /var/lib/volcano-global/decisions.jsonl \\
    | volcano-global history ml/train
"""


def history(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the job, or NAMESPACE/NAME.", show_default=False)
    ],
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="Its namespace; by default `default`, or none.")
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("-f", "--filename", metavar="FILE", help="Decision log; repeat it. By default standard input."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Print the recorded decisions about a job."""
    from controller.cli.render.replay import history_text  # noqa: PLC0415 -- see options
    from controller.cli.reports.replay import history_files  # noqa: PLC0415

    if not file and sys.stdin.isatty():
        raise typer.BadParameter("name decision logs with -f")
    refuse_list_format(output)
    refuse_empty_names(file or ())
    within, short = parse_job(name, namespace)
    paths = [f"{within}/{short}"]
    if namespace is None and name == short:
        # It may be a cluster-scoped workload.
        paths.append(short)
    report = history_files(file or ["-"], paths)
    print_report(report, output, history_text)
