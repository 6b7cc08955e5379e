"""The operators' commands: what each is for, and which report answers it."""

from difflib import get_close_matches
from typing import Annotated

import msgspec
import typer

from controller.cli import explanation_text, help_texts, tables
from controller.cli.hyperjob_text import hyperjob_text
from controller.cli.options import CommonOptions, with_common_options
from controller.cli.replay import replay
from controller.cli.report.clusters import cluster_reports
from controller.cli.report.explanation import explain
from controller.cli.report.hyperjobs import hyperjob_report
from controller.cli.report.pending import pending_reports
from controller.cli.report.plan import plan_report
from controller.cli.report.queues import queue_reports
from controller.cli.report.search import NotFoundError, find_job
from controller.cli.simulate import simulate
from controller.cli.snapshot import Snapshot
from controller.engine.queues import QueueName

app = typer.Typer(
    help=help_texts.ABOUT,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
explain_app = typer.Typer(
    help=help_texts.EXPLAIN,
    short_help="Say where a workload stands, and why.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(explain_app, name="explain")


@app.command(help=help_texts.PLAN, short_help="Decide one round and print it.")
@with_common_options
def plan(source: CommonOptions) -> None:
    """Print one decision round."""
    source.answer(plan_report(source.look()), tables.plan_table)


@app.command(help=help_texts.QUEUES, short_help="Print the tree of queues and what they hold.")
@with_common_options
def queues(source: CommonOptions) -> None:
    """Print the tree of queues."""
    source.answer(queue_reports(source.look()), tables.queues_table)


@app.command(help=help_texts.PENDING, short_help="Print who waits, and why.")
@with_common_options
def pending(
    source: CommonOptions,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="Only those who wait in this queue.")] = None,
) -> None:
    """Print who waits."""
    snapshot = source.look()
    if queue is not None:
        _require_queue(snapshot, QueueName(queue))
    source.answer(pending_reports(snapshot, QueueName(queue) if queue else None), tables.pending_table)


@app.command(help=help_texts.CLUSTERS, short_help="Print the member clusters and their room.")
@with_common_options
def clusters(source: CommonOptions) -> None:
    """Print the member clusters."""
    source.answer(cluster_reports(source.look()), tables.clusters_table)


@explain_app.command("job", help=help_texts.EXPLAIN_JOB, short_help="Say why a job waits, or where it is.")
@with_common_options
def explain_job(
    source: CommonOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the job.", show_default=False)],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
) -> None:
    """Explain one job."""
    snapshot = source.look()
    workload = find_job(snapshot, namespace, name)
    explanation = msgspec.structs.replace(explain(snapshot, workload), told=source.told(workload))
    source.answer(explanation, explanation_text.explanation_text)


@explain_app.command("hyperjob", help=help_texts.EXPLAIN_HYPERJOB, short_help="Say how a HyperJob is split, and why.")
@with_common_options
def explain_hyperjob(
    source: CommonOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the HyperJob.", show_default=False)],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
) -> None:
    """Explain one HyperJob."""
    source.answer(hyperjob_report(*source.look_at(namespace, name)), hyperjob_text)


app.command(
    "simulate", help=help_texts.SIMULATE, short_help="Play jobs on virtual time and print what became of them."
)(with_common_options(simulate))
app.command("replay", help=help_texts.REPLAY, short_help="Judge a journal of decisions again.")(replay)


def _require_queue(snapshot: Snapshot, queue: QueueName) -> None:
    """Raise `NotFoundError` for a queue that neither exists nor is waited for."""
    known = {*snapshot.state.queues, *snapshot.state.queues_with_pending()}
    if queue not in known and queue != "root":
        near = get_close_matches(queue, sorted(known), n=3) or sorted(known)[:5]
        raise NotFoundError(f"queue {queue} does not exist" + (f"; there is {', '.join(near)}" if near else ""))
