"""One logged moment: the queues and the order before its plan, what it decided, and why one workload was first."""

from collections.abc import Iterable, Iterator

import msgspec

from console.history import MomentAnswer
from console.model import Model
from console.reader import Reader
from console.views.decisions import DecisionRow, decision_row, exact_time, grouped, parse_time
from console.views.listing import (
    PAGE_SIZE,
    BadQueryError,
    Paging,
    Query,
    merge_consecutive,
    paging,
    quantities_text,
    shown_snapshot,
)
from controller.api.visibility import LoggedQueue, LoggedWorkload, Moment
from controller.cli.render.amounts import format_time
from controller.engine.state.hierarchy import QueueName

_MAX_FOCUS = 64
#: Rows of queues.
_MAX_QUEUES = 100


class QueueAtMoment(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One queue before the plan."""

    name: str
    priority: int
    weight: int
    pending: int
    admitted: int
    used: str
    fair_share: str
    limit: str
    share: float | None = None


class ClusterAtMoment(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One cluster before the plan."""

    name: str
    admitted: int
    used: str
    external: str
    allocatable: str


class OrderAtMoment(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One workload that was pending before the plan, or several consecutive ones of others."""

    position: int
    queue: str = ""
    count: int = 1
    uid: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    priority: int | None = None
    since: str | None = None
    requests: str = ""
    action: str = ""
    """What the plan decided: `Admit`, `Wait`; empty where it did not come to it."""
    reason: str = ""
    message: str = ""


class Compared(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One of two workloads that are compared."""

    row: OrderAtMoment
    queue_priority: int | None = None
    queue_share: float | None = None


class MomentView(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """The state before the last plan at or before a time, and what it decided."""

    time: str | None
    at: str
    """The requested time."""
    first: str = ""
    second: str = ""
    queue: str = ""
    analysis: str = ""
    """``Running`` while the log is replayed, ``Failed`` where that took too long."""
    problem: str = ""
    planned_at: str = ""
    is_intact: bool = True
    queue_order: str = ""
    queues: tuple[QueueAtMoment, ...] = ()
    hidden_queues: int = 0
    clusters: tuple[ClusterAtMoment, ...] = ()
    order: tuple[OrderAtMoment, ...] = ()
    paging: Paging | None = None
    decisions: tuple[DecisionRow, ...] = ()
    hidden_decisions: int = 0
    """Decisions after those."""
    omitted: int = 0
    """Queues, clusters, pending workloads and decisions that the controller left out."""
    compared: tuple[Compared, ...] = ()
    explanation: tuple[str, ...] = ()
    """Why the first workload started before the second."""


def requested_moment(query: Query) -> tuple[int | None, tuple[str, ...]]:
    """Return the time, and the uids of the workloads that are compared; raise `BadQueryError`."""
    focus = tuple(uid for uid in (query.text("first"), query.text("second")) if uid)
    if any(len(uid) > _MAX_FOCUS or not uid.replace("-", "").isalnum() or not uid.isascii() for uid in focus):
        raise BadQueryError("first and second are uids of bindings")
    return parse_time(query.text("at"), is_end=True), focus


def moment_view(
    model: Model, query: Query, reader: Reader, answer: MomentAnswer | None, status: str = ""
) -> MomentView:
    """Return one moment without names that *reader* may not see."""
    time = format_time(shown_snapshot(model).now)
    first, second, queue = query.text("first"), query.text("second"), query.text("queue")
    moment = answer.moment if answer is not None else None
    if answer is None or moment is None:
        problem = answer.problem if answer is not None else ""
        return MomentView(time, query.text("at"), first, second, queue, status, problem)
    rows = [workload for workload in moment.pending if queue in {"", workload.queue}]
    if queue and not reader.may_name(QueueName(queue), model):
        rows = []
    start = (query.page - 1) * PAGE_SIZE
    named = [logged for logged in moment.queues if reader.may_name(QueueName(logged.name), model)]
    named.sort(key=lambda logged: (-logged.pending, logged.path, logged.name))
    by_uid = {workload.uid: workload for workload in moment.pending}
    chosen = [by_uid[uid] for uid in (first, second) if uid in by_uid]
    return MomentView(
        time=time,
        at=query.text("at"),
        first=first,
        second=second,
        queue=queue,
        planned_at=exact_time(moment.at),
        is_intact=moment.is_intact,
        queue_order=moment.queue_order,
        queues=tuple(_queue(logged) for logged in named[:_MAX_QUEUES]),
        hidden_queues=len(moment.queues) - len(named[:_MAX_QUEUES]),
        clusters=_clusters(moment) if reader.all_clusters else (),
        order=tuple(_ordered(rows[start : start + PAGE_SIZE], model, reader)),
        paging=paging(len(rows), query, ("position",)),
        decisions=tuple(grouped(moment.decisions[:PAGE_SIZE], model, reader)),
        hidden_decisions=max(len(moment.decisions) - PAGE_SIZE, 0),
        omitted=moment.omitted,
        compared=tuple(_compared(workload, moment, model, reader) for workload in chosen),
        explanation=tuple(_explanation(first, second, moment, model, reader)),
    )


def _queue(queue: LoggedQueue) -> QueueAtMoment:
    used, fair, limit = (quantities_text(amounts) for amounts in (queue.allocated, queue.fair_share, queue.limit))
    return QueueAtMoment(
        queue.name, queue.priority, queue.weight, queue.pending, queue.admitted, used, fair, limit, queue.share
    )


def _clusters(moment: Moment) -> tuple[ClusterAtMoment, ...]:
    return tuple(
        ClusterAtMoment(
            cluster.name,
            cluster.admitted,
            quantities_text(cluster.allocated),
            quantities_text(cluster.external),
            quantities_text(cluster.allocatable),
        )
        for cluster in moment.clusters
    )


def _ordered(rows: Iterable[LoggedWorkload], model: Model, reader: Reader) -> Iterator[OrderAtMoment]:
    def are_alike(last: OrderAtMoment, row: OrderAtMoment) -> bool:
        is_next = (last.queue, last.position + last.count) == (row.queue, row.position)
        return not last.name and not row.name and is_next

    order = (_order_row(workload, model, reader) for workload in rows)
    return merge_consecutive(
        order, are_alike, lambda last: msgspec.structs.replace(last, count=last.count + 1, action="")
    )


def _order_row(pending: LoggedWorkload, model: Model, reader: Reader) -> OrderAtMoment:
    decision = pending.decision
    queue = pending.queue if reader.may_name(QueueName(pending.queue), model) else ""
    action = decision.action if decision is not None else ""
    if not reader.may_read(pending.namespace):
        return OrderAtMoment(pending.position, queue, action=action)
    row = decision_row(decision, model, reader) if decision is not None else None
    return OrderAtMoment(
        position=pending.position,
        queue=queue,
        uid=pending.uid,
        kind=pending.kind,
        namespace=pending.namespace,
        name=pending.name,
        priority=pending.priority,
        since=format_time(pending.since),
        requests=quantities_text(pending.requests),
        action=action,
        reason=row.reason if row is not None else "",
        message=row.message if row is not None else "",
    )


def _compared(pending: LoggedWorkload, moment: Moment, model: Model, reader: Reader) -> Compared:
    queue = next((logged for logged in moment.queues if logged.name == pending.queue), None)
    row = _order_row(pending, model, reader)
    if queue is None or not row.queue:
        return Compared(row)
    return Compared(row, queue.priority, queue.share)


def _explanation(first: str, second: str, moment: Moment, model: Model, reader: Reader) -> Iterator[str]:
    """Yield sentences: why the first one was admitted before the second (O1, O2)."""
    rows = {workload.uid: workload for workload in moment.pending}
    one, other = rows.get(first), rows.get(second)
    if one is None:
        return
    name, admitted = (
        _label(one, model, reader),
        {decision.uid: number for number, decision in enumerate(moment.decisions) if decision.action == "Admit"},
    )
    if one.uid not in admitted:
        yield f"This plan did not admit {name}."
        return
    if other is None:
        if second:
            yield "The other workload was not pending at that time."
        return
    compared = _label(other, model, reader)
    if other.uid in admitted:
        earlier, later = (name, compared) if admitted[one.uid] < admitted[other.uid] else (compared, name)
        yield f"This plan admitted both, {earlier} before {later}."
    yield from _reasons_for_order(one, other, compared, moment, model, reader)
    decision = other.decision
    if other.uid not in admitted and reader.may_read(other.namespace) and decision is not None and decision.message:
        message = decision_row(decision, model, reader).message
        yield f"{compared[0].upper()}{compared[1:]} could not start after that: {message}."


def _label(pending: LoggedWorkload, model: Model, reader: Reader) -> str:
    if reader.may_read(pending.namespace):
        path = f"{pending.namespace}/{pending.name}" if pending.namespace else pending.name
        return f"{pending.kind} {path}"
    may_name = reader.may_name(QueueName(pending.queue), model)
    return f"a job of queue {pending.queue}" if may_name else "a job of another queue"


def _reasons_for_order(  # noqa: PLR0913, PLR0917 -- both workloads and what the reader may see
    one: LoggedWorkload, other: LoggedWorkload, compared: str, moment: Moment, model: Model, reader: Reader
) -> Iterator[str]:
    """Yield why one of them was first in the order, and by which rule."""
    if one.queue == other.queue:
        if one.position > other.position:
            is_admitted = other.decision is not None and other.decision.action == "Admit"
            refused = "" if is_admitted else ", but this plan could not admit it"
            yield f"{compared[0].upper()}{compared[1:]} was ahead of it in the queue{refused}."
        elif moment.tenant_fairness == "NamespaceFirst" and one.namespace != other.namespace:
            yield (
                "It was ahead in the queue: the share of its namespace was not larger, which is compared before "
                "priority (O2)."
            )
        elif one.priority > other.priority:
            yield f"It was ahead in the queue: its priority {one.priority} is higher than {other.priority} (O2)."
        elif one.priority < other.priority:
            yield "It was ahead in the queue: waiting had raised its priority (O10)."
        elif moment.tenant_fairness != "None" and one.namespace != other.namespace:
            yield "It was ahead in the queue: its namespace had the smaller share of the queue (O2)."
        elif one.since != other.since:
            yield "It was ahead in the queue: it is older (O2)."
        else:
            yield "It was ahead in the queue by its name (O2)."
    elif one.borrows == other.borrows:
        yield from _reasons_between_queues(one, other, moment, model, reader)
    elif other.borrows:
        yield "It stayed within the fair share of its queue, and the other one would have borrowed (O3)."
    else:
        yield "The other one was ahead of it: it stayed within the fair share of its queue, and this one borrows (O3)."


def _reasons_between_queues(
    one: LoggedWorkload, other: LoggedWorkload, moment: Moment, model: Model, reader: Reader
) -> Iterator[str]:
    """Yield why one of two queues was first in the order (O1)."""
    queues = {queue.name: queue for queue in moment.queues}
    own, theirs = queues.get(one.queue), queues.get(other.queue)
    if own is None or theirs is None:
        return
    names = [name if reader.may_name(QueueName(name), model) else "" for name in (one.queue, other.queue)]
    of_own, of_theirs = (f"queue {name}" if name else "another queue" for name in names)
    if own.priority != theirs.priority:
        is_higher = "higher" if own.priority > theirs.priority else "lower"
        yield (
            f"The priority of {of_own}, {own.priority}, is {is_higher} than that of the other's queue, "
            f"{theirs.priority} (O1)."
        )
        return
    branches = next(
        ((mine, its) for mine, its in zip(own.path, theirs.path, strict=False) if mine != its), (own.name, theirs.name)
    )
    shares = [queues[branch].share if branch in queues else None for branch in branches]
    texts = [f"{share:.2f}" if share is not None else "infinite" for share in shares]
    mine = of_own if branches[0] == own.name else "its branch"
    other_one = of_theirs if branches[1] == theirs.name else "the other branch"
    yield (
        f"Before this plan the usage ratio of {mine} was {texts[0]}, that of {other_one} {texts[1]}; the smaller one "
        "is first, and ratios are computed again after every admission (O1)."
    )
