"""An explanation in sentences."""

from collections.abc import Iterable, Iterator

from controller.api.quantity import parse_quantity
from controller.cli.report.amounts import Amounts, listed, minute
from controller.cli.report.explanation import Explanation, Neighbour, OwnQueue, Running, Told, Waiting
from controller.cli.report.queues import QueueStanding
from controller.cli.report.sites import SiteReport
from controller.cli.screen import Cell, Column, Screen, paragraph, table
from controller.cli.sheets import brief

_INDENT = 2
_SHOWN = 5
_STANDING = (
    Column("QUEUE"),
    Column("RESOURCE"),
    Column("ALLOCATED", right=True),
    Column("ENTITLEMENT", right=True),
    Column("CEILING", right=True),
)


def told(explanation: Explanation, screen: Screen) -> str:
    """Return *explanation* as text, a paragraph for each side of it."""
    waiting, running, queue = explanation.waiting, explanation.running, explanation.queue
    path = f"{explanation.kind} {explanation.namespace}/{explanation.name}"
    parts = [paragraph(Cell(f"{path} {_state(explanation)}.", "bold"), screen)]
    if waiting:
        parts.append(_section("Why it waits", _why(waiting), screen))
    if running:
        parts.append(_section("Where it is", _where(running, queue), screen))
    parts.append(_section("What it asks for", _request(explanation), screen))
    parts.append(_section("Its queue", [_described(queue)], screen) + _standings(queue, explanation.demand, screen))
    if waiting:
        parts.append(_section("Before it in its queue", _before(waiting), screen))
        parts.append(_section("Clusters", _sites(waiting.clusters), screen))
    if explanation.told:
        parts.append(_section("What its events tell", map(_event, explanation.told), screen))
    return "\n\n".join(parts)


def _event(told: Told) -> str:
    times = f", {told.count} times" if told.count > 1 else ""
    return f"{told.last or 'at an unknown time'} {told.reason}{times}: {told.note}."


def _section(title: str, sentences: Iterable[str], screen: Screen) -> str:
    lines = (paragraph(sentence, screen, indent=_INDENT) for sentence in sentences)
    return "\n".join([paragraph(Cell(f"{title}:", "bold"), screen), *lines])


def _state(explanation: Explanation) -> str:
    waiting, running = explanation.waiting, explanation.running
    if waiting:
        return f"waits in queue '{explanation.queue.name}' as number {waiting.position} of {waiting.of}"
    if running and running.now:
        return "is next: this decision round admits it"
    if running:
        return "is admitted" + (f" since {minute(running.since)} UTC" if running.since else "")
    where = f" on {', '.join(explanation.finished_on)}" if explanation.finished_on else ""
    return f"has finished{where}; it holds nothing any more"


def _why(waiting: Waiting) -> Iterator[str]:
    yield f"{waiting.reason}: {waiting.message}."
    if len(waiting.missing) > 1 or any(each.lacks for each in waiting.missing):
        yield "All that it lacks, what is met first coming first:"
        yield from (f"- {each.message}" for each in waiting.missing)
    yield f"What would let it in: {waiting.remedy}."


def _where(running: Running, queue: OwnQueue) -> Iterator[str]:
    for part in running.clusters:
        yield f"{part.name}, charged with {_listed(part.charge)}."
    held = queue.standings[0].allocated if queue.standings else {}
    shares = [f"{brief(name, running.charge)} of {brief(name, held)} {name}" for name in running.charge if name in held]
    if shares:
        yield f"Of what queue '{queue.name}' holds in all, that is {', '.join(shares)}."
    if running.outgrown is not None:
        yield f"It was admitted with {_listed(running.outgrown)} and has grown since; all of it counts."
        yield from _beyond(queue)
    if running.adopted:
        yield "It carries no record of an admission, so it is left alone."


def _beyond(queue: OwnQueue) -> Iterator[str]:
    """Yield where it has taken its queues beyond what they may hold."""
    for standing in queue.standings:
        over = [
            f"{brief(name, standing.allocated)} {name} of {brief(name, standing.ceiling)}"
            for name in standing.allocated
            if name in standing.ceiling
            and parse_quantity(name, standing.allocated[name]) > parse_quantity(name, standing.ceiling[name])
        ]
        if over:
            yield f"Queue '{standing.name}' holds {', '.join(over)} and takes nothing more until it is back below that."


def _request(explanation: Explanation) -> Iterator[str]:
    yield f"{_listed(explanation.demand)}{_gang(explanation)}."
    if explanation.copies > 1 and explanation.waiting:
        yield f"Its placement sends the whole of it to {explanation.copies} clusters; each copy is charged."
    age = f"its age counts from {minute(explanation.since)} UTC" if explanation.since else "its age is not known"
    yield f"Priority {explanation.priority}{_class(explanation)}; {age}."


def _gang(explanation: Explanation) -> str:
    if explanation.gang == explanation.demand:
        return ", all of it at once" if explanation.demand else ""
    return f"; {_listed(explanation.gang)} must start together"


def _class(explanation: Explanation) -> str:
    name = explanation.priority_class
    if explanation.unknown_class:
        return f", the default, for PriorityClass '{name}' does not exist"
    return f" of PriorityClass '{name}'" if name else ""


def _described(queue: OwnQueue) -> str:
    if not queue.exists:
        meant = f"; did you mean {' or '.join(queue.near)}?" if queue.near else "."
        return f"{queue.name} does not exist{meant}"
    path = " > ".join(queue.path) or f"{queue.name}, outside the tree,"
    return f"{path} is {queue.state}, weight {queue.weight}, priority {queue.priority}."


def _standings(queue: OwnQueue, asked: Amounts, screen: Screen) -> str:
    """Return how the queue and its ancestors stand in what is asked for."""
    rows = [row for standing in queue.standings for row in _standing(standing, asked)]
    if not rows:
        return ""
    lines = table(_STANDING, rows, screen).splitlines()
    return "".join(f"\n{' ' * _INDENT}{line}" for line in lines)


def _standing(standing: QueueStanding, asked: Amounts) -> Iterator[tuple[str, ...]]:
    for name in (each for each in standing.allocated if each in asked):
        amounts = (standing.allocated, standing.entitlement, standing.ceiling)
        yield standing.name, name, *(brief(name, each) for each in amounts)


def _before(waiting: Waiting) -> Iterator[str]:
    yield from map(_neighbour, waiting.before[:_SHOWN])
    more = len(waiting.before) - _SHOWN
    if more > 0:
        yield f"And {more} more."
    if not waiting.before:
        yield "Nobody."


def _neighbour(each: Neighbour) -> str:
    return f"{each.kind} {each.namespace}/{each.name} with priority {each.priority}: {each.reason}."


def _sites(clusters: tuple[SiteReport, ...]) -> Iterator[str]:
    for each in clusters:
        yield f"{each.name}: {_site(each)}."
    if not clusters:
        yield "There is none."


def _site(site: SiteReport) -> str:
    if site.exclusion is not None:
        return f"no candidate, {site.trouble} ({site.exclusion})"
    if site.trouble:
        return f"{'a' if site.candidate else 'no'} candidate, but it {site.trouble}"
    if site.replicas is not None:
        return f"has room for {site.replicas} of its replicas"
    if not site.lacks:
        return "has room for it"
    lacks = (f"{brief(name, site.lacks)} {name} ({brief(name, site.free)} free)" for name in site.lacks)
    return f"lacks {' and '.join(lacks)}"


def _listed(amounts: Amounts) -> str:
    return listed({name: parse_quantity(name, amount) for name, amount in amounts.items()})
