"""An explanation in sentences."""

from collections.abc import Iterator

from controller.api.quantity import parse_quantity
from controller.cli.report.amounts import Amounts, listed, minute
from controller.cli.report.explanation import Explanation, Neighbour, OwnQueue, Running, Waiting
from controller.cli.report.queues import QueueStanding
from controller.cli.report.sites import SiteReport
from controller.cli.screen import Cell, Column, Screen, paragraph, table
from controller.cli.sheets import brief

_SHOWN = 5


def told(explanation: Explanation, screen: Screen) -> str:
    """Return *explanation* as text, a paragraph for each side of it."""
    parts = [
        _head(explanation, screen),
        *([_why(explanation.waiting, screen)] if explanation.waiting else []),
        *([_where(explanation.running, explanation.queue, screen)] if explanation.running else []),
        _request(explanation, screen),
        _queue(explanation.queue, screen),
        *([_before(explanation.waiting, screen)] if explanation.waiting else []),
        *([_sites(explanation.waiting.clusters, screen)] if explanation.waiting else []),
    ]
    return "\n\n".join(parts)


def _head(explanation: Explanation, screen: Screen) -> str:
    path = f"{explanation.kind} {explanation.namespace}/{explanation.name}"
    return paragraph(Cell(f"{path} {_state(explanation)}.", "bold"), screen)


def _state(explanation: Explanation) -> str:
    waiting, running = explanation.waiting, explanation.running
    if waiting:
        return f"waits in queue '{explanation.queue.name}' as number {waiting.position} of {waiting.of}"
    if running and running.now:
        return "is next: this decision round admits it"
    if running:
        since = "" if running.since is None else f" since {minute(running.since)} UTC"
        return f"is admitted{since}"
    where = f" on {', '.join(explanation.finished_on)}" if explanation.finished_on else ""
    return f"has finished{where}; it holds nothing any more"


def _section(title: str, lines: Iterator[str], screen: Screen) -> str:
    return "\n".join([paragraph(Cell(f"{title}:", "bold"), screen), *lines])


def _why(waiting: Waiting, screen: Screen) -> str:
    def lines() -> Iterator[str]:
        yield paragraph(f"{waiting.reason}: {waiting.message}.", screen, indent=2)
        yield paragraph(f"What would let it in: {waiting.remedy}.", screen, indent=2)

    return _section("Why it waits", lines(), screen)


def _where(running: Running, queue: OwnQueue, screen: Screen) -> str:
    def lines() -> Iterator[str]:
        for part in running.clusters:
            yield paragraph(f"{part.name}, charged with {_listed(part.charge)}.", screen, indent=2)
        shares = _shares(running.charge, queue)
        if shares:
            yield paragraph(f"Of what queue '{queue.name}' holds in all, that is {shares}.", screen, indent=2)
        if running.adopted:
            yield paragraph("It ran before admission was introduced and is left alone.", screen, indent=2)

    return _section("Where it is", lines(), screen)


def _shares(charge: Amounts, queue: OwnQueue) -> str:
    """Return the part of its queue's use that is its own."""
    held = queue.standings[0].allocated if queue.standings else {}
    return ", ".join(f"{brief(name, charge)} of {brief(name, held)} {name}" for name in charge if name in held)


def _request(explanation: Explanation, screen: Screen) -> str:
    def lines() -> Iterator[str]:
        yield paragraph(f"{_listed(explanation.demand)}{_gang(explanation)}.", screen, indent=2)
        if explanation.copies > 1:
            text = f"Its placement sends the whole of it to {explanation.copies} clusters; each copy is charged."
            yield paragraph(text, screen, indent=2)
        yield paragraph(f"Priority {explanation.priority}{_class(explanation)}; {_age(explanation)}.", screen, indent=2)

    return _section("What it asks for", lines(), screen)


def _gang(explanation: Explanation) -> str:
    if explanation.gang == explanation.demand:
        return ", all of it at once" if explanation.demand else ""
    return f"; {_listed(explanation.gang)} must start together"


def _class(explanation: Explanation) -> str:
    name = explanation.priority_class
    if explanation.unknown_class:
        return f", the default: PriorityClass '{name}' does not exist"
    return f" of PriorityClass '{name}'" if name else ""


def _age(explanation: Explanation) -> str:
    return f"created {minute(explanation.since)} UTC" if explanation.since else "created at an unknown time"


def _queue(queue: OwnQueue, screen: Screen) -> str:
    def lines() -> Iterator[str]:
        yield paragraph(f"{_described(queue)}.", screen, indent=2)
        rows = [row for standing in queue.standings for row in _standing(standing)]
        if rows:
            titles = (Column("ALLOCATED", right=True), Column("ENTITLEMENT", right=True), Column("CEILING", right=True))
            yield table([Column("  QUEUE"), Column("RESOURCE"), *titles], rows, screen)

    return _section("Its queue", lines(), screen)


def _standing(standing: QueueStanding) -> Iterator[tuple[str, ...]]:
    for name in standing.allocated:
        amounts = (standing.allocated, standing.entitlement, standing.ceiling)
        yield f"  {standing.name}", name, *(brief(name, each) for each in amounts)


def _described(queue: OwnQueue) -> str:
    if not queue.exists:
        meant = f"; did you mean {' or '.join(queue.near)}?" if queue.near else ""
        return f"{queue.name} does not exist{meant}"
    path = " > ".join(queue.path) or f"{queue.name}, outside the tree,"
    return f"{path} is {queue.state}, weight {queue.weight}, priority {queue.priority}"


def _before(waiting: Waiting, screen: Screen) -> str:
    def lines() -> Iterator[str]:
        for each in waiting.before[:_SHOWN]:
            yield paragraph(_neighbour(each), screen, indent=2)
        more = len(waiting.before) - _SHOWN
        if more > 0:
            yield paragraph(f"and {more} more", screen, indent=2)
        if not waiting.before:
            yield paragraph("Nobody.", screen, indent=2)

    return _section("Before it in its queue", lines(), screen)


def _neighbour(each: Neighbour) -> str:
    return f"{each.kind} {each.namespace}/{each.name}, priority {each.priority}, {each.reason}"


def _sites(clusters: tuple[SiteReport, ...], screen: Screen) -> str:
    def lines() -> Iterator[str]:
        for each in clusters:
            yield paragraph(f"{each.name}: {_site(each)}.", screen, indent=2)
        if not clusters:
            yield paragraph("There is no cluster.", screen, indent=2)

    return _section("Clusters", lines(), screen)


def _site(site: SiteReport) -> str:
    if not site.candidate:
        return f"no candidate, {site.trouble or 'it does not match'} ({site.exclusion})"
    if site.trouble:
        return f"a candidate, but it {site.trouble}"
    if site.replicas is not None:
        return f"has room for {site.replicas} of its replicas"
    if not site.lacks:
        return "has room for it"
    short_of = ", ".join(
        f"{brief(name, site.free)} {name} free, {brief(name, site.lacks)} too little" for name in site.lacks
    )
    return f"has no room: {short_of}"


def _listed(amounts: Amounts) -> str:
    return listed({name: parse_quantity(name, amount) for name, amount in amounts.items()})
