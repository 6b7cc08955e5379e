"""The `explain` commands: why a job or the parts of a HyperJob are pending, and what a queue may use."""

from typing import TYPE_CHECKING, Annotated

import typer

from controller.cli.commands.options import CommonOptions, parse_job, with_common_options
from controller.cli.commands.tenant import with_tenant_fallback

if TYPE_CHECKING:
    from controller.cli.input.snapshot import Snapshot
    from controller.cli.render.explain import Explanation
    from controller.cli.render.hyperjob import HyperJobReport

# A line with only a backspace prevents the lines after it from being rewrapped.
EXPLAIN_HELP = """
Explain the state of a workload or a queue, and what would change it.
"""

JOB_HELP = """
Explain why a job is pending, which workloads are ahead of it, which clusters it could use and what would admit it; or
where it runs.

\b
Examples:
  volcano-global explain job train -n ml
  volcano-global explain job ml/train
  volcano-global explain job train -n ml -f objects.yaml -o json
"""

HYPERJOB_HELP = """
Explain how a HyperJob is split, or would be split now: each part, its size, its cluster and why, and why it is pending.

\b
Examples:
  volcano-global explain hyperjob llm-training -n ml
  volcano-global explain hyperjob ml/llm-training -f objects.yaml -o json
"""

QUEUE_HELP = """
Explain a queue: its usage, fair share and limit, the clusters that its workloads can use, and what is pending in it.

\b
Examples:
  volcano-global explain queue team-a
  volcano-global explain queue team-a -f objects.yaml -o json
"""

Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Its namespace; by default `default`.")]

app = typer.Typer(
    help=EXPLAIN_HELP,
    short_help="Explain the state of a workload or a queue.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("job", help=JOB_HELP, short_help="Explain why a job is pending, or where it runs.")
@with_common_options
@with_tenant_fallback
def explain_job(
    options: CommonOptions,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the job, or NAMESPACE/NAME.", show_default=False)
    ],
    namespace: Namespace = None,
) -> None:
    """Explain one job."""
    from controller.cli.input.snapshot import find_job  # noqa: PLC0415 -- see options
    from controller.cli.render.explain import explanation_text  # noqa: PLC0415
    from controller.cli.reports.explain import explain  # noqa: PLC0415

    within, short = parse_job(name, namespace)

    def report() -> "tuple[Snapshot, Explanation]":
        snapshot = options.snapshot()
        workload = find_job(snapshot, within, short)
        return snapshot, explain(snapshot, workload, options.recorded_events(workload))

    options.show_report(report, explanation_text)


@app.command("hyperjob", help=HYPERJOB_HELP, short_help="Explain the parts of a HyperJob.")
@with_common_options
def explain_hyperjob(
    options: CommonOptions,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the HyperJob, or NAMESPACE/NAME.", show_default=False)
    ],
    namespace: Namespace = None,
) -> None:
    """Explain one HyperJob."""
    from controller.cli.render.hyperjob import hyperjob_text  # noqa: PLC0415 -- see options
    from controller.cli.reports.explain import hyperjob_report  # noqa: PLC0415

    within, short = parse_job(name, namespace)

    def report() -> "tuple[Snapshot, HyperJobReport]":
        snapshot, hyperjob, split = options.hyperjob_snapshot(within, short)
        return snapshot, hyperjob_report(snapshot, hyperjob, split)

    options.show_report(report, hyperjob_text)


@app.command("queue", help=QUEUE_HELP, short_help="Explain the usage and the limits of a queue.")
@with_common_options
def explain_queue(
    options: CommonOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the queue.", show_default=False)],
) -> None:
    """Explain one queue."""
    from controller.cli.input.names import without_kind  # noqa: PLC0415 -- see options
    from controller.cli.render.explain import queue_text  # noqa: PLC0415 -- see options
    from controller.cli.reports.explain import queue_explanation  # noqa: PLC0415

    options.show(lambda snapshot: queue_explanation(snapshot, without_kind(name)), queue_text)
