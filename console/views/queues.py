"""The overview, the tree of queues and one queue."""

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

import msgspec

from console.model import Model
from console.reader import Reader
from console.views.clusters import ClusterRow, cluster_rows
from console.views.decisions import DecisionRow, recent_decisions
from console.views.forecasts import Forecasts, visible_start
from console.views.listing import (
    PAGE_SIZE,
    Bar,
    NotVisibleError,
    Paging,
    Query,
    amounts_text,
    page_of,
    paging,
    queue_bar,
    shown_resources,
    shown_snapshot,
)
from controller.cli.input.snapshot import Snapshot
from controller.cli.render.amounts import format_time
from controller.cli.render.plan import StartReport
from controller.cli.reports.queues import fair_share_of, queue_path, usage_ratio
from controller.engine.plan import Admit, Decision
from controller.engine.state.hierarchy import ROOT, Node, QueueName
from controller.engine.state.resources import Resources, total
from controller.engine.state.workloads import Workload
from controller.reporting.messages import pending_message

SORTS = ("tree", "pending", "share", "oldest", "name")

#: Clusters on the overview.
_MAX_CLUSTERS = 12
#: Points of a series.
_MAX_POINTS = 120


class QueueRow(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One queue with its current usage; the numbers include the queues below it."""

    name: str
    depth: int
    state: str
    weight: int
    priority: int
    pending: int
    admitted: int
    bars: tuple[Bar, ...]
    share: float | None = None
    """Usage divided by fair share; null if infinite, or without a fair share."""
    oldest: str | None = None
    """When its oldest pending workload was created."""
    next_start: StartReport | None = None
    """Forecast of the start of its first pending workload with a forecast."""


class OthersRow(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """Queues that the reader may not name, together."""

    queues: int
    pending: int
    admitted: int
    usage: str


class Overview(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """The queues and clusters of the control plane."""

    time: str | None
    queues: tuple[QueueRow, ...]
    paging: Paging
    others: OthersRow | None
    clusters: tuple[ClusterRow, ...]
    cluster_count: int
    pending: int
    admitted: int
    next_cycle: str
    """What the next scheduling cycle would do."""
    recent: tuple[DecisionRow, ...] = ()
    """The newest admissions and evictions, if the decision log is served."""


def overview(model: Model, query: Query, reader: Reader, forecasts: Forecasts) -> Overview:
    """Return the overview."""
    snapshot = shown_snapshot(model)
    rows, page, others = _rows(model, query, reader, forecasts)
    clusters = (
        cluster_rows(snapshot, [state.name for state in snapshot.current.clusters][:_MAX_CLUSTERS])
        if reader.all_clusters
        else ()
    )
    return Overview(
        time=format_time(snapshot.now),
        queues=rows,
        paging=page,
        others=others,
        clusters=clusters,
        cluster_count=len(snapshot.current.clusters),
        pending=snapshot.current.pending.get(ROOT, 0),
        admitted=snapshot.current.admitted.get(ROOT, 0),
        next_cycle=_next_cycle(snapshot.plan.decisions) or "no change",
        recent=recent_decisions(model, reader),
    )


def _next_cycle(decisions: Iterable[Decision]) -> str:
    """Return the numbers of *decisions* by action: ``admit 2, evict 1``; empty without any."""
    counts = Counter("admit" if isinstance(decision, Admit) else "evict" for decision in decisions)
    return ", ".join(f"{action} {count}" for action, count in sorted(counts.items()))


def _rows(
    model: Model, query: Query, reader: Reader, forecasts: Forecasts
) -> tuple[tuple[QueueRow, ...], Paging, OthersRow | None]:
    snapshot = shown_snapshot(model)
    names = sorted({*snapshot.shares.quota.tree.nodes, *snapshot.engine.queues})
    visible = [name for name in names if reader.may_name(name, model)]
    if text := query.text("q"):
        visible = [name for name in visible if text in name]
    page = paging(len(visible), query, SORTS)
    current, oldest = snapshot.current, model.index.oldest
    keys = {
        "tree": lambda name: (not queue_path(snapshot, name), queue_path(snapshot, name), name),
        "pending": lambda name: (-current.pending.get(name, 0), name),
        "share": lambda name: _by_ratio(snapshot, name),
        "oldest": lambda name: (oldest.get(name, snapshot.now), name),
        "name": lambda name: (name,),
    }
    rows = tuple(queue_row(model, name, reader, forecasts) for name in page_of(visible, query, keys[page.sort]))
    return rows, page, None if reader.all_queues else _others(model, reader, names)


def _others(model: Model, reader: Reader, names: Iterable[QueueName]) -> OthersRow | None:
    """Return the queues without children that *reader* may not name, together."""
    snapshot = shown_snapshot(model)
    nodes = snapshot.shares.quota.tree.nodes
    hidden = [name for name in names if not reader.may_name(name, model) and (name not in nodes or nodes[name].is_leaf)]
    if not hidden:
        return None
    current = snapshot.current
    return OthersRow(
        queues=len(hidden),
        pending=sum(current.pending.get(name, 0) for name in hidden),
        admitted=sum(current.admitted.get(name, 0) for name in hidden),
        usage=amounts_text(total(current.queues.get(name, {}) for name in hidden)),
    )


def _by_ratio(snapshot: Snapshot, name: QueueName) -> tuple[bool, Fraction, QueueName]:
    """Return the sort key that puts the largest usage ratio first, and an infinite one before all others."""
    if name not in snapshot.shares.quota.tree.nodes:
        return True, Fraction(0), name
    is_infinite, ratio = snapshot.shares.usage_ratio_with(name, snapshot.current.queues.get(name, {}))
    return not is_infinite, -ratio, name


def queue_row(model: Model, name: QueueName, reader: Reader, forecasts: Forecasts) -> QueueRow:
    """Return the row of one queue."""
    snapshot = shown_snapshot(model)
    node = snapshot.shares.quota.tree.nodes.get(name)
    queue = node.queue if node is not None else snapshot.engine.queues[name]
    current = snapshot.current
    used = current.queues.get(name, {})
    return QueueRow(
        name=name,
        depth=node.depth if node is not None else 0,
        state=queue.state if node is not None else "Broken",
        weight=queue.weight,
        priority=queue.priority,
        pending=current.pending.get(name, 0),
        admitted=current.admitted.get(name, 0),
        bars=_bars(snapshot, name, used),
        share=usage_ratio(snapshot, name, used),
        oldest=format_time(model.index.oldest.get(name)),
        next_start=visible_start(forecasts.first_of(name), reader),
    )


def _bars(snapshot: Snapshot, name: QueueName, used: Resources) -> tuple[Bar, ...]:
    shares = snapshot.shares
    limit = shares.quota.limits[name].limit if name in shares.quota.tree.nodes else {}
    fair = fair_share_of(snapshot, name)
    return tuple(queue_bar(resource, used, fair, limit) for resource in shown_resources(snapshot.resources))


class TreeNode(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One queue of the tree, with those below it that the reader may name."""

    row: QueueRow
    children: tuple["TreeNode", ...] = ()
    hidden: int = 0
    """Queues below it that are not shown: too many, or not to be named."""


class Tree(msgspec.Struct, rename="camel", frozen=True):
    """The tree of queues below one queue; *path* leads to it from the root."""

    time: str | None
    path: tuple[str, ...]
    tree: TreeNode


#: Queues of one drawing; a click on a queue draws the tree below it.
_MAX_NODES = 120


def tree(model: Model, query: Query, reader: Reader, forecasts: Forecasts) -> Tree:
    """Return the tree of queues below the queue of the parameter `below`, by default the root."""
    snapshot = shown_snapshot(model)
    name = QueueName(query.text("below") or ROOT)
    node = snapshot.shares.quota.tree.nodes.get(name)
    if node is None or (name != ROOT and not reader.may_name(name, model)):
        raise NotVisibleError(f"there is no queue {name!r} that you may see")
    chosen, level = {name}, [node]
    while level:
        children = [child for parent in level for child in parent.children if reader.may_name(child.name, model)]
        # The queues with the most pending workloads of a level that is too wide.
        children.sort(key=lambda child: (-snapshot.current.pending.get(child.name, 0), child.name))
        level = children[: _MAX_NODES - len(chosen)]
        chosen.update(child.name for child in level)
    return Tree(
        format_time(snapshot.now), queue_path(snapshot, name), _tree_node(model, node, chosen, reader, forecasts)
    )


def _tree_node(model: Model, node: Node, chosen: set[QueueName], reader: Reader, forecasts: Forecasts) -> TreeNode:
    children = tuple(
        _tree_node(model, child, chosen, reader, forecasts) for child in node.children if child.name in chosen
    )
    return TreeNode(queue_row(model, node.name, reader, forecasts), children, len(node.children) - len(children))


class OrderedWorkload(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One pending workload at its position, or several consecutive ones that the reader may not name."""

    position: int
    count: int = 1
    """Number of workloads: more than one only for those of others."""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    """Empty for workloads of others."""
    priority: int | None = None
    raised_priority: int | None = None
    """The priority as raised by waiting (O10)."""
    since: str | None = None
    requests: str = ""
    reason: str = ""
    message: str = ""
    start: StartReport | None = None


class Point(msgspec.Struct, frozen=True):
    """Usage at one time."""

    at: str | None
    used: float


class Series(msgspec.Struct, rename="camel", frozen=True):
    """Usage of one resource over time, as parts of the limit or of the largest usage."""

    resource: str
    points: tuple[Point, ...]
    fair_part: float
    largest: str
    """The amount at the upper end."""


class QueueView(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One queue: its order, its usage and its configuration."""

    time: str | None
    queue: QueueRow
    path: tuple[str, ...]
    children: tuple[QueueRow, ...]
    hidden_children: int
    capability: str
    guarantee: str
    deserved: str
    reasons: tuple[tuple[str, int], ...]
    """Why workloads are pending, for the most frequent reasons."""
    order: tuple[OrderedWorkload, ...]
    """The pending workloads after the next scheduling cycle."""
    paging: Paging
    next_candidate: OrderedWorkload | None
    """The first workload in order that competes, with the reason why it does not start."""
    starts: tuple[OrderedWorkload, ...]
    """The first workloads with a forecast."""
    series: tuple[Series, ...]
    next_cycle: str = ""
    """What the next scheduling cycle would do in this queue itself."""


def queue_view(model: Model, query: Query, reader: Reader, forecasts: Forecasts) -> QueueView:
    """Return one queue; raise `NotVisibleError`."""
    snapshot = shown_snapshot(model)
    name = QueueName(query.path["name"])
    node = snapshot.shares.quota.tree.nodes.get(name)
    spec = node.queue if node is not None else snapshot.engine.queues.get(name)
    if spec is None or not reader.may_name(name, model):
        raise NotVisibleError(f"there is no queue {name!r} that you may see")
    ordered = snapshot.engine.pending_workloads(name)
    page = paging(len(ordered), query, ("position",))
    start = (page.page - 1) * PAGE_SIZE
    children = [child.name for child in node.children] if node is not None else []
    named = [child for child in children if reader.may_name(child, model)]
    shown = sorted(named, key=lambda child: (-snapshot.current.pending.get(child, 0), child))[:PAGE_SIZE]
    order = tuple(_ordered(snapshot, ordered[start : start + PAGE_SIZE], start + 1, reader, forecasts))
    starts = [workload for workload in ordered[:20] if workload.uid in forecasts.starts]
    return QueueView(
        time=format_time(snapshot.now),
        queue=queue_row(model, name, reader, forecasts),
        path=queue_path(snapshot, name),
        children=tuple(queue_row(model, child, reader, forecasts) for child in shown),
        hidden_children=len(children) - len(shown),
        capability=amounts_text(spec.capability),
        guarantee=amounts_text(spec.guarantee),
        deserved=amounts_text(spec.deserved),
        reasons=_reasons(snapshot, name),
        order=order,
        paging=page,
        next_candidate=_next_candidate(snapshot, ordered, reader, forecasts),
        starts=tuple(_one(snapshot, workload, ordered.index(workload) + 1, reader, forecasts) for workload in starts),
        series=_series(model, name),
        next_cycle=_next_cycle(decision for decision in snapshot.plan.decisions if decision.workload.queue == name),
    )


def _reasons(snapshot: Snapshot, name: QueueName) -> tuple[tuple[str, int], ...]:
    """Count the reasons by class: its workloads have one reason, except the head of a fifo queue (O5)."""
    counts: Counter[str] = Counter()
    queue = snapshot.engine.queues.get(name)
    for workload_class in snapshot.engine.pending.queues.get(name, ()):
        workloads = workload_class.workloads
        heads = 1 if queue is not None and queue.fifo else len(workloads)
        for workload, count in ((workloads[0], heads), (workloads[-1], len(workloads) - heads)):
            refusal = snapshot.engine.refusal(workload.uid) if count else None
            if refusal is not None:
                counts[refusal.reason] += count
    for refusal in snapshot.engine.index.on_hold.get(name, {}).values():
        counts[refusal.reason] += 1
    return tuple(counts.most_common(6))


def _next_candidate(
    snapshot: Snapshot, ordered: list[Workload], reader: Reader, forecasts: Forecasts
) -> OrderedWorkload | None:
    for position, workload in enumerate(ordered[:200], start=1):
        refusal = snapshot.engine.refusal(workload.uid)
        if not workload.is_being_evicted and (
            refusal is None
            or (refusal.is_about_capacity and snapshot.engine.pending.class_of(workload.uid).inadmissible is None)
        ):
            return _one(snapshot, workload, position, reader, forecasts)
    return None


def _ordered(
    snapshot: Snapshot, workloads: list[Workload], first: int, reader: Reader, forecasts: Forecasts
) -> Iterable[OrderedWorkload]:
    """Yield *workloads* with their positions; consecutive ones of others as one row."""
    others: list[Workload] = []
    for position, workload in enumerate(workloads, start=first):
        if not reader.may_read(workload.namespace):
            others.append(workload)
            continue
        if others:
            yield _others_in_order(others, position - len(others))
            others = []
        yield _one(snapshot, workload, position, reader, forecasts)
    if others:
        yield _others_in_order(others, first + len(workloads) - len(others))


def _others_in_order(workloads: list[Workload], position: int) -> OrderedWorkload:
    requests = total(workload.requirements.requests for workload in workloads)
    return OrderedWorkload(position, len(workloads), requests=amounts_text(requests))


def _one(
    snapshot: Snapshot, workload: Workload, position: int, reader: Reader, forecasts: Forecasts
) -> OrderedWorkload:
    if not reader.may_read(workload.namespace):
        return _others_in_order([workload], position)
    visible = reader.redacted(snapshot.engine.refusal(workload.uid))
    return OrderedWorkload(
        position=position,
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        priority=workload.priority,
        raised_priority=snapshot.engine.raised_priority(workload),
        since=format_time(workload.created_at),
        requests=amounts_text(workload.requirements.requests),
        reason=visible.reason if visible else "",
        message=pending_message(visible) if visible else "",
        start=visible_start(forecasts.starts.get(workload.uid), reader),
    )


def _series(model: Model, name: QueueName) -> tuple[Series, ...]:
    """Return the usage of a queue since the console has started, at most four hours."""
    snapshot = shown_snapshot(model)
    step = max(-(-len(model.usage.times) // _MAX_POINTS), 1)
    times = model.usage.times[::step]
    result = []
    limits = snapshot.shares.quota.limits.get(name)
    for resource in shown_resources(snapshot.resources):
        used = model.usage.amounts(name, resource)[::step]
        limit = limits.limit.get(resource, 0) if limits is not None else 0
        fair = fair_share_of(snapshot, name).get(resource, 0)
        largest = max([*used, limit, 1])
        points = tuple(
            Point(format_time(at), round(amount / largest, 3)) for at, amount in zip(times, used, strict=True)
        )
        result.append(Series(resource, points, round(float(fair / largest), 3), amounts_text({resource: largest})))
    return tuple(result)
