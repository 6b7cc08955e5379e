"""Defines the commands and the report that each prints."""

from difflib import get_close_matches
from typing import Annotated

import msgspec
import typer

from controller.cli import help_texts
from controller.cli.commands.explain import explain
from controller.cli.commands.options import CommonOptions, with_common_options
from controller.cli.commands.plan import plan_report
from controller.cli.commands.replay import replay_command
from controller.cli.commands.simulate import simulate_command
from controller.cli.hyperjob_text import hyperjob_text
from controller.cli.input.snapshot import Snapshot
from controller.cli.render.explain import explanation_text
from controller.cli.render.plan import clusters_table, pending_table, plan_table, queues_table
from controller.cli.report.clusters import cluster_reports
from controller.cli.report.hyperjobs import hyperjob_report
from controller.cli.report.pending import pending_reports
from controller.cli.report.queues import queue_reports
from controller.cli.report.search import NotFoundError, find_job
from controller.engine.state.hierarchy import QueueName

app = typer.Typer(
    help=help_texts.ABOUT,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
explain_app = typer.Typer(
    help=help_texts.EXPLAIN,
    short_help="Explain the state of a workload.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(explain_app, name="explain")


@app.command(help=help_texts.PLAN, short_help="Plan one scheduling cycle and print it.")
@with_common_options
def plan(options: CommonOptions) -> None:
    """Print the plan of one scheduling cycle."""
    options.print_report(plan_report(options.snapshot()), plan_table)


@app.command(help=help_texts.QUEUES, short_help="Print the queue hierarchy and its usage.")
@with_common_options
def queues(options: CommonOptions) -> None:
    """Print the queue hierarchy."""
    options.print_report(queue_reports(options.snapshot()), queues_table)


@app.command(help=help_texts.PENDING, short_help="Print pending workloads and their reasons.")
@with_common_options
def pending(
    options: CommonOptions,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="Only the workloads of this queue.")] = None,
) -> None:
    """Print pending workloads."""
    snapshot = options.snapshot()
    if queue is not None:
        _require_queue(snapshot, QueueName(queue))
    options.print_report(pending_reports(snapshot, QueueName(queue) if queue else None), pending_table)


@app.command(help=help_texts.CLUSTERS, short_help="Print the member clusters and their capacity.")
@with_common_options
def clusters(options: CommonOptions) -> None:
    """Print the member clusters."""
    options.print_report(cluster_reports(options.snapshot()), clusters_table)


@explain_app.command("job", help=help_texts.EXPLAIN_JOB, short_help="Explain why a job is pending, or where it runs.")
@with_common_options
def explain_job(
    options: CommonOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the job.", show_default=False)],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the job.")] = "default",
) -> None:
    """Explain one job."""
    snapshot = options.snapshot()
    workload = find_job(snapshot, namespace, name)
    explanation = msgspec.structs.replace(explain(snapshot, workload), events=options.published_events(workload))
    options.print_report(explanation, explanation_text)


@explain_app.command("hyperjob", help=help_texts.EXPLAIN_HYPERJOB, short_help="Explain the parts of a HyperJob.")
@with_common_options
def explain_hyperjob(
    options: CommonOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the HyperJob.", show_default=False)],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the HyperJob.")] = "default",
) -> None:
    """Explain one HyperJob."""
    options.print_report(hyperjob_report(*options.hyperjob_snapshot(namespace, name)), hyperjob_text)


app.command("simulate", help=help_texts.SIMULATE, short_help="Simulate jobs on virtual time and print statistics.")(
    with_common_options(simulate_command)
)
app.command("replay", help=help_texts.REPLAY, short_help="Replay a decision log and compare the decisions.")(
    replay_command
)


def _require_queue(snapshot: Snapshot, queue: QueueName) -> None:
    """Raise `NotFoundError` for a queue that does not exist and that no pending workload names."""
    known = {*snapshot.state.queues, *snapshot.state.queues_with_pending()}
    if queue not in known and queue != "root":
        near = get_close_matches(queue, sorted(known), n=3) or sorted(known)[:5]
        raise NotFoundError(f"queue {queue} does not exist" + (f"; there is {', '.join(near)}" if near else ""))
