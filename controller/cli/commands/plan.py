"""The commands `plan`, `queues`, `pending`, `clusters` and `top`: each reports one part of a scheduling cycle."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controller.cli.commands.options import CommonOptions, with_common_options
from controller.cli.commands.tenant import with_tenant_fallback

if TYPE_CHECKING:
    from controller.cli.input.snapshot import Snapshot
    from controller.cli.render.plan import PlanReport
    from controller.cli.reports.selection import Selection

# A line with only a backspace prevents the lines after it from being rewrapped.
PLAN_HELP = """
Plan one scheduling cycle and print it: admissions and their clusters, pending workloads and their reasons, and the
usage of the queues afterwards.

Files may contain Queues, Clusters, PriorityClasses, Jobs and other templates, propagation policies, bindings, HyperJobs
and a VolcanoGlobalConfiguration, as YAML or JSON, also as lists printed by kubectl. A HyperJob is planned as its Jobs.
A job without a binding is pending with the placement of the policy that matches it; without a policy, it may be placed
on any one cluster.

\b
Examples:
  volcano-global plan -f objects.yaml
  volcano-global plan -f queues/ -f jobs.yaml -o json
  kubectl get queues,clusters,priorityclasses,jobs.batch.volcano.sh,resourcebindings -A -o yaml \\
    | volcano-global plan -f -
  volcano-global plan --kubeconfig karmada.config
  volcano-global plan -f objects.yaml --what-if queue/team-a.spec.weight=3
  volcano-global plan --what-if 'job/ml/train.spec.tasks[0].replicas=4'
"""

QUEUES_HELP = """
Print queues and their current usage, fair share and limit, with the numbers of pending and admitted workloads.

\b
Examples:
  volcano-global queues
  volcano-global queues team-a team-b -o wide
  volcano-global queues --next-cycle        also what the next cycle would do
  volcano-global queues -f objects.yaml -o json
"""

PENDING_HELP = """
Print the pending workloads after the next scheduling cycle: position, priority, age and reason.

\b
Examples:
  volcano-global pending
  volcano-global pending -n ml -l app=train
  volcano-global pending --queue research -o json
  volcano-global pending | grep InsufficientCapacity
"""

CLUSTERS_HELP = """
Print the member clusters: allocatable resources, external usage, our usage and free capacity.

\b
Examples:
  volcano-global clusters
  volcano-global clusters member1 --next-cycle
  volcano-global clusters -f objects.yaml -o json
"""

TOP_HELP = """
Print the admitted workloads with the highest usage: queue, clusters, charge and age.

\b
Examples:
  volcano-global top
  volcano-global top -n ml --sort-by charge.memory
  volcano-global top --queue research -o csv
"""

Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", show_default=False)]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Only the workloads of this namespace.")]
AllNamespaces = Annotated[
    bool, typer.Option("-A", "--all-namespaces", help="The workloads of all namespaces; the default.")
]
Selector = Annotated[
    str | None, typer.Option("-l", "--selector", metavar="LABELS", help="Only objects with these labels: a=b,c!=d.")
]
SortBy = Annotated[
    str | None, typer.Option("--sort-by", metavar="FIELD", help="Sort by a field of the JSON, such as allocated.cpu.")
]
NextCycle = Annotated[bool, typer.Option("--next-cycle", help="Also print what the next scheduling cycle would do.")]
OfQueue = Annotated[
    str | None, typer.Option("-q", "--queue", help="Only the workloads of this queue and those below it.")
]

WhatIfChanges = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH=VALUE",
        help="Change a field before the plan, KIND/[NAMESPACE/]NAME.FIELD=VALUE, and print what differs; repeat it.",
        show_default=False,
    ),
]


@with_common_options
def plan(options: CommonOptions, *, what_if: WhatIfChanges = None) -> None:
    """Print the plan of one scheduling cycle."""
    from controller.cli.input.what_if import parse_what_if  # noqa: PLC0415 -- see options
    from controller.cli.render.plan import plan_table  # noqa: PLC0415
    from controller.cli.reports.plan import plan_report, with_difference  # noqa: PLC0415

    changes = parse_what_if(what_if or ())
    if not changes:
        options.show(plan_report, plan_table)
        return

    def report() -> "tuple[Snapshot, PlanReport]":
        at_once = replace(options, time=options.now)
        before, after = at_once.snapshot(), at_once.snapshot(changes)
        return after, with_difference(plan_report(after), plan_report(before), [change.text for change in changes])

    options.show_report(report, plan_table)


def _select_named(
    options: CommonOptions, names: Names = None, *, selector: Selector = None, sort_by: SortBy = None
) -> "Selection":
    from controller.cli.reports.selection import Selection  # noqa: PLC0415 -- see options

    return Selection.parse(names=names, labels=selector, sort_by=sort_by, templates=options.selected)


def _select_workloads(  # noqa: PLR0913 -- the options are declared here only
    options: CommonOptions,
    names: Names = None,
    *,
    queue: OfQueue = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = None,
    sort_by: SortBy = None,
) -> "Selection":
    selection = _select_named(options, names, selector=selector, sort_by=sort_by)
    return selection.of_workloads(queue, None if all_namespaces else namespace)


def with_selection(select: "Callable[..., Selection]") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of *select* to a command, and pass the selection as its second argument."""
    chosen = list(inspect.signature(select).parameters.values())[1:]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        first, _, *own = inspect.signature(command).parameters.values()

        @functools.wraps(command)
        def run(options: CommonOptions, **arguments: Any) -> None:
            selection = select(options, **{parameter.name: arguments.pop(parameter.name) for parameter in chosen})
            command(options, selection, **arguments)

        run.__signature__ = inspect.Signature([first, *chosen, *own])  # type: ignore[attr-defined] # read by with_common_options
        return run

    return decorate


@with_common_options
@with_selection(_select_named)
def queues(options: CommonOptions, selection: "Selection", *, next_cycle: NextCycle = False) -> None:
    """Print queues."""
    from controller.cli.render.queues import queues_listing  # noqa: PLC0415 -- see options
    from controller.cli.reports.queues import queue_reports  # noqa: PLC0415

    options.show(lambda snapshot: queue_reports(snapshot, selection, with_next_cycle=next_cycle), queues_listing)


@with_common_options
@with_tenant_fallback
@with_selection(_select_workloads)
def pending(options: CommonOptions, selection: "Selection") -> None:
    """Print pending workloads."""
    from controller.cli.render.output import Format  # noqa: PLC0415 -- see options
    from controller.cli.render.plan import pending_listing  # noqa: PLC0415
    from controller.cli.reports.plan import pending_reports  # noqa: PLC0415

    options.show(
        lambda snapshot: pending_reports(snapshot, selection, with_starts=options.output is not Format.NAME),
        lambda report: pending_listing(report, is_narrowed=selection.is_narrowed),
    )


@with_common_options
@with_selection(_select_named)
def clusters(options: CommonOptions, selection: "Selection", *, next_cycle: NextCycle = False) -> None:
    """Print the member clusters."""
    from controller.cli.render.plan import clusters_listing  # noqa: PLC0415 -- see options
    from controller.cli.reports.plan import cluster_reports  # noqa: PLC0415

    options.show(
        lambda snapshot: cluster_reports(snapshot, selection, with_next_cycle=next_cycle),
        lambda report: clusters_listing(report, is_narrowed=selection.is_narrowed),
    )


@with_common_options
@with_selection(_select_workloads)
def top(options: CommonOptions, selection: "Selection") -> None:
    """Print the admitted workloads with the highest usage."""
    from controller.cli.render.plan import top_listing  # noqa: PLC0415 -- see options
    from controller.cli.reports.plan import usage_reports  # noqa: PLC0415

    options.show(
        lambda snapshot: usage_reports(snapshot, selection),
        lambda report: top_listing(report, is_narrowed=selection.is_narrowed),
    )
