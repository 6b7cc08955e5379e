"""Formats the explanation of a workload as text."""

from collections.abc import Iterable, Iterator

from controller.api.quantity import parse_quantity
from controller.cli.commands.explain import (
    AdmittedState,
    Explanation,
    PendingState,
    PublishedEvent,
    WorkloadAhead,
    WorkloadQueue,
)
from controller.cli.render.output import Cell, Column, OutputStyle, paragraph, table
from controller.cli.render.plan import format_amount
from controller.cli.report.amounts import Amounts, describe_requests, format_minute
from controller.cli.report.candidates import CandidateReport
from controller.cli.report.queues import QueueShareReport

_INDENT = 2
_MAX_SHOWN = 5
_SHARE_COLUMNS = (
    Column("QUEUE"),
    Column("RESOURCE"),
    Column("USED", right=True),
    Column("FAIR SHARE", right=True),
    Column("LIMIT", right=True),
)


def explanation_text(explanation: Explanation, style: OutputStyle) -> str:
    """Format *explanation* as text with a section for each aspect."""
    pending, admitted, queue = explanation.waiting, explanation.running, explanation.queue
    path = f"{explanation.kind} {explanation.namespace}/{explanation.name}"
    parts = [paragraph(Cell(f"{path} {_state(explanation)}.", "bold"), style)]
    if pending:
        parts.append(_section("Why it is pending", _pending_lines(pending), style))
    if admitted:
        parts.append(_section("Where it runs", _admission_lines(admitted, queue), style))
    parts.append(_section("Requests", _request_lines(explanation), style))
    parts.append(_section("Queue", [_queue_line(queue)], style) + _share_table(queue, explanation.requests, style))
    if pending:
        parts.append(_section("Ahead in the queue", _ahead_lines(pending), style))
        parts.append(_section("Clusters", _cluster_lines(pending.clusters), style))
    if explanation.events:
        parts.append(_section("Events", map(_event, explanation.events), style))
    return "\n\n".join(parts)


def _event(event: PublishedEvent) -> str:
    times = f", {event.count} times" if event.count > 1 else ""
    return f"{event.last or 'at an unknown time'} {event.reason}{times}: {event.note}."


def _section(title: str, sentences: Iterable[str], style: OutputStyle) -> str:
    lines = (paragraph(sentence, style, indent=_INDENT) for sentence in sentences)
    return "\n".join([paragraph(Cell(f"{title}:", "bold"), style), *lines])


def _state(explanation: Explanation) -> str:
    pending, admitted = explanation.waiting, explanation.running
    if pending:
        return f"is pending in queue '{explanation.queue.name}' at position {pending.position} of {pending.of}"
    if admitted and admitted.now:
        return "is admitted by this scheduling cycle"
    if admitted:
        return "is admitted" + (f" since {format_minute(admitted.since)} UTC" if admitted.since else "")
    where = f" on {', '.join(explanation.finished_on)}" if explanation.finished_on else ""
    return f"has finished{where}; its usage is zero"


def _pending_lines(pending: PendingState) -> Iterator[str]:
    yield f"{pending.reason}: {pending.message}."
    if len(pending.missing) > 1 or any(unmet.lacks for unmet in pending.missing):
        yield "All unmet requirements, in the order in which they are checked:"
        yield from (f"- {unmet.message}" for unmet in pending.missing)
    yield f"What would admit it: {pending.remedy}."


def _admission_lines(admitted: AdmittedState, queue: WorkloadQueue) -> Iterator[str]:
    for part in admitted.clusters:
        yield f"{part.name}, charged with {_format_amounts(part.charge)}."
    used = queue.shares[0].allocated if queue.shares else {}
    shares = [
        f"{format_amount(name, admitted.charge)} of {format_amount(name, used)} {name}"
        for name in admitted.charge
        if name in used
    ]
    if shares:
        yield f"That is {', '.join(shares)} used by queue '{queue.name}'."
    if admitted.pending_resize is not None:
        amounts = _format_amounts(admitted.pending_resize)
        yield f"It was admitted with {amounts} and resized since; the current charge counts."
        yield from _exceeded_limit_lines(queue)
    if admitted.adopted:
        yield "It has no admission record, because it ran before installation; it is never evicted."


def _exceeded_limit_lines(queue: WorkloadQueue) -> Iterator[str]:
    """Yield a sentence for each of its queues with usage above the limit."""
    for standing in queue.shares:
        over = [
            f"{format_amount(name, standing.allocated)} {name} of {format_amount(name, standing.limit)}"
            for name in standing.allocated
            if name in standing.limit
            and parse_quantity(name, standing.allocated[name]) > parse_quantity(name, standing.limit[name])
        ]
        if over:
            yield f"Queue '{standing.name}' uses {', '.join(over)}; it admits nothing while usage exceeds the limit."


def _request_lines(explanation: Explanation) -> Iterator[str]:
    yield f"{_format_amounts(explanation.requests)}{_gang(explanation)}."
    if explanation.copies > 1 and explanation.waiting:
        yield f"Its placement duplicates it to {explanation.copies} clusters; each copy is charged."
    age = f"queued since {format_minute(explanation.since)} UTC" if explanation.since else "its age is unknown"
    yield f"Priority {explanation.priority}{_class(explanation)}; {age}."


def _gang(explanation: Explanation) -> str:
    if explanation.gang == explanation.requests:
        return ", all pods at once" if explanation.requests else ""
    return f"; {_format_amounts(explanation.gang)} must be placed together"


def _class(explanation: Explanation) -> str:
    name = explanation.priority_class
    if explanation.unknown_class:
        return f", the default, because PriorityClass '{name}' does not exist"
    return f" of PriorityClass '{name}'" if name else ""


def _queue_line(queue: WorkloadQueue) -> str:
    if not queue.exists:
        meant = f"; did you mean {' or '.join(queue.similar_names)}?" if queue.similar_names else "."
        return f"{queue.name} does not exist{meant}"
    path = " > ".join(queue.path) or f"{queue.name}, outside the hierarchy,"
    return f"{path} is {queue.state}, weight {queue.weight}, priority {queue.priority}."


def _share_table(queue: WorkloadQueue, asked: Amounts, style: OutputStyle) -> str:
    """Return a table of the queue and its ancestors for the requested resources."""
    rows = [row for share in queue.shares for row in _share_rows(share, asked)]
    if not rows:
        return ""
    lines = table(_SHARE_COLUMNS, rows, style).splitlines()
    return "".join(f"\n{' ' * _INDENT}{line}" for line in lines)


def _share_rows(standing: QueueShareReport, asked: Amounts) -> Iterator[tuple[str, ...]]:
    for name in (resource for resource in standing.allocated if resource in asked):
        amounts = (standing.allocated, standing.fair_share, standing.limit)
        yield standing.name, name, *(format_amount(name, resource) for resource in amounts)


def _ahead_lines(pending: PendingState) -> Iterator[str]:
    yield from map(_ahead_line, pending.before[:_MAX_SHOWN])
    more = len(pending.before) - _MAX_SHOWN
    if more > 0:
        yield f"And {more} more."
    if not pending.before:
        yield "No workload."


def _ahead_line(workload: WorkloadAhead) -> str:
    return f"{workload.kind} {workload.namespace}/{workload.name} with priority {workload.priority}: {workload.reason}."


def _cluster_lines(clusters: tuple[CandidateReport, ...]) -> Iterator[str]:
    for candidate in clusters:
        yield f"{candidate.name}: {_cluster_line(candidate)}."
    if not clusters:
        yield "There is no cluster."


def _cluster_line(candidate: CandidateReport) -> str:
    if candidate.exclusion is not None:
        return f"not a candidate: {candidate.problem} ({candidate.exclusion})"
    if candidate.problem:
        return f"{'a' if candidate.candidate else 'not a'} candidate, but it {candidate.problem}"
    if candidate.replicas is not None:
        return f"has free capacity for {candidate.replicas} of its replicas"
    if not candidate.lacks:
        return "has free capacity for it"
    lacks = (
        f"{format_amount(name, candidate.lacks)} {name} ({format_amount(name, candidate.free)} free)"
        for name in candidate.lacks
    )
    return f"lacks {' and '.join(lacks)}"


def _format_amounts(amounts: Amounts) -> str:
    return describe_requests({name: parse_quantity(name, amount) for name, amount in amounts.items()})
