"""An explanation in sentences."""

from collections.abc import Iterable, Iterator

from controller.api.quantity import parse_quantity
from controller.cli.output import Cell, Column, OutputStyle, paragraph, table
from controller.cli.report.amounts import Amounts, describe_requests, format_minute
from controller.cli.report.candidates import CandidateReport
from controller.cli.report.explanation import (
    AdmittedState,
    Explanation,
    PendingState,
    PublishedEvent,
    WorkloadAhead,
    WorkloadQueue,
)
from controller.cli.report.queues import QueueShareReport
from controller.cli.tables import format_amount

_INDENT = 2
_MAX_SHOWN = 5
_SHARE_COLUMNS = (
    Column("QUEUE"),
    Column("RESOURCE"),
    Column("ALLOCATED", right=True),
    Column("ENTITLEMENT", right=True),
    Column("CEILING", right=True),
)


def explanation_text(explanation: Explanation, screen: OutputStyle) -> str:
    """Return *explanation* as text, a paragraph for each side of it."""
    waiting, running, queue = explanation.waiting, explanation.running, explanation.queue
    path = f"{explanation.kind} {explanation.namespace}/{explanation.name}"
    parts = [paragraph(Cell(f"{path} {_state(explanation)}.", "bold"), screen)]
    if waiting:
        parts.append(_section("Why it waits", _pending_lines(waiting), screen))
    if running:
        parts.append(_section("Where it is", _admission_lines(running, queue), screen))
    parts.append(_section("What it asks for", _request_lines(explanation), screen))
    parts.append(_section("Its queue", [_queue_line(queue)], screen) + _share_table(queue, explanation.demand, screen))
    if waiting:
        parts.append(_section("Before it in its queue", _ahead_lines(waiting), screen))
        parts.append(_section("Clusters", _cluster_lines(waiting.clusters), screen))
    if explanation.told:
        parts.append(_section("What its events tell", map(_event, explanation.told), screen))
    return "\n\n".join(parts)


def _event(told: PublishedEvent) -> str:
    times = f", {told.count} times" if told.count > 1 else ""
    return f"{told.last or 'at an unknown time'} {told.reason}{times}: {told.note}."


def _section(title: str, sentences: Iterable[str], screen: OutputStyle) -> str:
    lines = (paragraph(sentence, screen, indent=_INDENT) for sentence in sentences)
    return "\n".join([paragraph(Cell(f"{title}:", "bold"), screen), *lines])


def _state(explanation: Explanation) -> str:
    waiting, running = explanation.waiting, explanation.running
    if waiting:
        return f"waits in queue '{explanation.queue.name}' as number {waiting.position} of {waiting.of}"
    if running and running.now:
        return "is next: this decision round admits it"
    if running:
        return "is admitted" + (f" since {format_minute(running.since)} UTC" if running.since else "")
    where = f" on {', '.join(explanation.finished_on)}" if explanation.finished_on else ""
    return f"has finished{where}; it holds nothing any more"


def _pending_lines(waiting: PendingState) -> Iterator[str]:
    yield f"{waiting.reason}: {waiting.message}."
    if len(waiting.missing) > 1 or any(each.lacks for each in waiting.missing):
        yield "All that it lacks, what is met first coming first:"
        yield from (f"- {each.message}" for each in waiting.missing)
    yield f"What would let it in: {waiting.remedy}."


def _admission_lines(running: AdmittedState, queue: WorkloadQueue) -> Iterator[str]:
    for part in running.clusters:
        yield f"{part.name}, charged with {_format_amounts(part.charge)}."
    held = queue.standings[0].allocated if queue.standings else {}
    shares = [
        f"{format_amount(name, running.charge)} of {format_amount(name, held)} {name}"
        for name in running.charge
        if name in held
    ]
    if shares:
        yield f"Of what queue '{queue.name}' holds in all, that is {', '.join(shares)}."
    if running.outgrown is not None:
        yield f"It was admitted with {_format_amounts(running.outgrown)} and has grown since; all of it counts."
        yield from _exceeded_limit_lines(queue)
    if running.adopted:
        yield "It carries no record of an admission, so it is left alone."


def _exceeded_limit_lines(queue: WorkloadQueue) -> Iterator[str]:
    """Yield where it has taken its queues beyond what they may hold."""
    for standing in queue.standings:
        over = [
            f"{format_amount(name, standing.allocated)} {name} of {format_amount(name, standing.ceiling)}"
            for name in standing.allocated
            if name in standing.ceiling
            and parse_quantity(name, standing.allocated[name]) > parse_quantity(name, standing.ceiling[name])
        ]
        if over:
            yield f"Queue '{standing.name}' holds {', '.join(over)} and takes nothing more until it is back below that."


def _request_lines(explanation: Explanation) -> Iterator[str]:
    yield f"{_format_amounts(explanation.demand)}{_gang(explanation)}."
    if explanation.copies > 1 and explanation.waiting:
        yield f"Its placement sends the whole of it to {explanation.copies} clusters; each copy is charged."
    age = f"its age counts from {format_minute(explanation.since)} UTC" if explanation.since else "its age is not known"
    yield f"Priority {explanation.priority}{_class(explanation)}; {age}."


def _gang(explanation: Explanation) -> str:
    if explanation.gang == explanation.demand:
        return ", all of it at once" if explanation.demand else ""
    return f"; {_format_amounts(explanation.gang)} must start together"


def _class(explanation: Explanation) -> str:
    name = explanation.priority_class
    if explanation.unknown_class:
        return f", the default, for PriorityClass '{name}' does not exist"
    return f" of PriorityClass '{name}'" if name else ""


def _queue_line(queue: WorkloadQueue) -> str:
    if not queue.exists:
        meant = f"; did you mean {' or '.join(queue.near)}?" if queue.near else "."
        return f"{queue.name} does not exist{meant}"
    path = " > ".join(queue.path) or f"{queue.name}, outside the tree,"
    return f"{path} is {queue.state}, weight {queue.weight}, priority {queue.priority}."


def _share_table(queue: WorkloadQueue, asked: Amounts, screen: OutputStyle) -> str:
    """Return how the queue and its ancestors stand in what is asked for."""
    rows = [row for standing in queue.standings for row in _share_rows(standing, asked)]
    if not rows:
        return ""
    lines = table(_SHARE_COLUMNS, rows, screen).splitlines()
    return "".join(f"\n{' ' * _INDENT}{line}" for line in lines)


def _share_rows(standing: QueueShareReport, asked: Amounts) -> Iterator[tuple[str, ...]]:
    for name in (each for each in standing.allocated if each in asked):
        amounts = (standing.allocated, standing.entitlement, standing.ceiling)
        yield standing.name, name, *(format_amount(name, each) for each in amounts)


def _ahead_lines(waiting: PendingState) -> Iterator[str]:
    yield from map(_ahead_line, waiting.before[:_MAX_SHOWN])
    more = len(waiting.before) - _MAX_SHOWN
    if more > 0:
        yield f"And {more} more."
    if not waiting.before:
        yield "Nobody."


def _ahead_line(each: WorkloadAhead) -> str:
    return f"{each.kind} {each.namespace}/{each.name} with priority {each.priority}: {each.reason}."


def _cluster_lines(clusters: tuple[CandidateReport, ...]) -> Iterator[str]:
    for each in clusters:
        yield f"{each.name}: {_cluster_line(each)}."
    if not clusters:
        yield "There is none."


def _cluster_line(site: CandidateReport) -> str:
    if site.exclusion is not None:
        return f"no candidate, {site.trouble} ({site.exclusion})"
    if site.trouble:
        return f"{'a' if site.candidate else 'no'} candidate, but it {site.trouble}"
    if site.replicas is not None:
        return f"has room for {site.replicas} of its replicas"
    if not site.lacks:
        return "has room for it"
    lacks = (f"{format_amount(name, site.lacks)} {name} ({format_amount(name, site.free)} free)" for name in site.lacks)
    return f"lacks {' and '.join(lacks)}"


def _format_amounts(amounts: Amounts) -> str:
    return describe_requests({name: parse_quantity(name, amount) for name, amount in amounts.items()})
