"""Past decisions: the list, those of the overview, and those while one workload waited."""

import re
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from console.model import Model
from console.reader import Reader
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
from controller.api.visibility import LoggedDecision
from controller.cli.render.amounts import format_time
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import WorkloadUid
from controller.reporting.decision_log.records import update_message
from controller.reporting.redaction import ANOTHER_WORKLOAD, redacted_message

if TYPE_CHECKING:
    from console.history import Kind

#: Without a choice, admissions, evictions, nominations and reservations are listed, but no changed pending reasons.
ACTIONS = ("Decided", "Any", "Admit", "Evict", "Wait", "Keep", "Requeue")
#: A time of a form, without seconds or the time of day where these are left out.
_TIME = re.compile(r"\d{4}-?\d\d-?\d\d(?:.([\d:.,]*).*)?", re.DOTALL)
#: Milliseconds that a time means, by the digits of its time of day.
_PERIODS = {0: 86_400_000, 2: 3_600_000, 4: 60_000, 6: 1_000}
#: Decisions on the overview, and admissions while one workload waited.
_RECENT, _EARLIER = 8, 5


class DecisionRow(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One decision, or consecutive equal ones about workloads of others together."""

    at: str
    """With milliseconds, as the page of a moment takes it."""
    action: str
    count: int = 1
    uid: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    """Empty for workloads of others."""
    queue: str = ""
    rule: str = ""
    requests: str = ""
    reason: str = ""
    message: str = ""
    preemptor: str = ""
    """For which workload it was evicted."""
    position: int | None = None
    clusters: tuple[str, ...] = ()
    nominated_cluster: str = ""
    """Where it starts after its victims have stopped."""
    update: str = ""
    """Which nomination or head reservation begins or ends."""


class DecisionsView(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """The list of decisions, the newest first."""

    time: str | None
    decisions: tuple[DecisionRow, ...]
    paging: Paging
    action: str
    namespace: str
    queue: str
    since: str
    until: str
    recorded_since: str | None = None
    """When the oldest log begins, or the oldest decision in memory where older ones were dropped."""
    is_served: bool = True
    problem: str = ""


def parse_time(text: str, *, is_end: bool = False) -> int | None:
    """Return a time of a form in milliseconds, ``None`` without one; in UTC unless it names its zone.

    A day, or a time without seconds or milliseconds, is its beginning or end. Raises `BadQueryError`.
    """
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        at = round(moment.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise BadQueryError("write a time as 2026-11-23T14:02 or 2026-11-23T14:02:11.250Z, in UTC") from error
    if not 0 <= at < 10**14:
        raise BadQueryError("the time must be after 1970 and before 5138")
    written = _TIME.fullmatch(text)
    if not is_end or written is None:
        return at
    return at + _PERIODS.get(sum(map(str.isdigit, written[1] or "")), 1) - 1


def exact_time(at: int) -> str:
    """Format a time with milliseconds."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def decisions_view(model: Model, query: Query, reader: Reader) -> DecisionsView:
    """Return one page of the list."""
    action = query.choice("action", ACTIONS)
    since, until = parse_time(query.text("since")), parse_time(query.text("until"), is_end=True)
    chosen = list(_selected(model, query, reader, action, since or 0, until or 2**62))
    page = paging(len(chosen), query, ("newest", "oldest"))
    if page.sort == "oldest":
        chosen.reverse()
    start = (page.page - 1) * PAGE_SIZE
    return DecisionsView(
        time=format_time(shown_snapshot(model).now),
        decisions=tuple(grouped(chosen[start : start + PAGE_SIZE], model, reader)),
        paging=page,
        action=action,
        namespace=query.text("namespace"),
        queue=query.text("queue"),
        since=query.text("since"),
        until=query.text("until"),
        recorded_since=format_time(model.history.since(_kind(action))),
        is_served=model.history.is_enabled,
        problem=model.history.problem,
    )


def _kind(action: str) -> "Kind":
    """Return the kind of the decisions among which those with *action* are."""
    return "Any" if action == "Any" else "Wait" if action == "Wait" else "Decided"


def _selected(  # noqa: PLR0913, PLR0917 -- what a list depends on
    model: Model, query: Query, reader: Reader, action: str, since: int, until: int
) -> Iterator[LoggedDecision]:
    """Yield the decisions that the filters select; a filter by names selects only what the reader may name."""
    text, namespace, queue = query.text("q"), query.text("namespace"), query.text("queue")
    own: set[str] | None = None
    if (text or namespace) and not reader.all_workloads:
        own = {namespace} if namespace else set(reader.own_namespaces(model))
        own = {name for name in own if reader.may_read(name)}
    if queue and not reader.may_name(QueueName(queue), model):
        return
    for decision in model.history.newest_first(_kind(action)):
        if (
            since <= decision.at <= until
            and (action in {"Any", "Decided", decision.action})
            and (not queue or queue == decision.queue)
            and (not namespace or namespace == decision.namespace)
            and (own is None or decision.namespace in own)
            and (not text or text in decision.name or text in decision.namespace)
        ):
            yield decision


def grouped(decisions: Iterable[LoggedDecision], model: Model, reader: Reader) -> Iterator[DecisionRow]:
    """Return rows; consecutive decisions about workloads of others are one row for each action and queue."""

    def are_alike(last: DecisionRow, row: DecisionRow) -> bool:
        return not last.name and not row.name and (last.action, last.queue) == (row.action, row.queue)

    rows = (decision_row(decision, model, reader) for decision in decisions)
    return merge_consecutive(rows, are_alike, lambda last: msgspec.structs.replace(last, count=last.count + 1))


def decision_row(decision: LoggedDecision, model: Model, reader: Reader) -> DecisionRow:
    """Return the row of one decision, without names that *reader* may not see."""
    queue = decision.queue if reader.may_name(QueueName(decision.queue), model) else ""
    at = exact_time(decision.at)
    if not reader.may_read(decision.namespace):
        return DecisionRow(at, decision.action, queue=queue)
    return DecisionRow(
        at=at,
        action=decision.action,
        uid=decision.uid,
        kind=decision.kind,
        namespace=decision.namespace,
        name=decision.name,
        queue=queue,
        rule=decision.rule,
        requests=quantities_text(decision.request),
        reason=decision.reason or "",
        message=redacted_message(decision.reason, decision.facts.get("subject"), decision.message, reader.may_read),
        preemptor=_preemptor(decision, model, reader),
        position=decision.position,
        clusters=tuple(cluster.name for cluster in decision.clusters),
        nominated_cluster=decision.nominated_cluster,
        update=_update(decision) if decision.action == "Keep" else "",
    )


def _update(decision: LoggedDecision) -> str:
    return update_message(
        decision.rule,
        nominated_cluster=decision.nominated_cluster,
        reserved_since=decision.reserved_since,
        reserved_cluster=decision.reserved_cluster,
    )


def _preemptor(decision: LoggedDecision, model: Model, reader: Reader) -> str:
    if not decision.preemptor:
        return ""
    workload = shown_snapshot(model).engine.workloads.get(WorkloadUid(decision.preemptor))
    return workload.path if workload is not None and reader.may_read(workload.namespace) else ANOTHER_WORKLOAD


def recent_decisions(model: Model, reader: Reader) -> tuple[DecisionRow, ...]:
    """Return the newest admissions and evictions."""
    chosen = (decision for decision in model.history.newest_first("Decided") if decision.action in {"Admit", "Evict"})
    return tuple(grouped(islice(chosen, _RECENT), model, reader))


def decisions_about(model: Model, uids: Collection[str], reader: Reader) -> tuple[DecisionRow, ...]:
    """Return the newest decisions about these workloads, without changed pending reasons."""
    chosen = (decision for decision in model.history.newest_first("Decided") if decision.uid in uids)
    return tuple(grouped(islice(chosen, PAGE_SIZE), model, reader))


def admitted_before(
    model: Model, uid: str, reader: Reader, *, since: int, until: int | None
) -> tuple[DecisionRow, ...]:
    """Return the last admissions of other workloads between two times, the newest first."""
    chosen = (
        decision
        for decision in model.history.newest_first("Decided")
        if decision.action == "Admit" and decision.uid != uid and since <= decision.at <= (until or decision.at)
    )
    return tuple(decision_row(decision, model, reader) for decision in islice(chosen, _EARLIER))
