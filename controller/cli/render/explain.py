"""The explanations of a workload and of a queue, and their texts."""

import shlex
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from controller.api.quantity import parse_quantity
from controller.cli.render.amounts import Amounts, describe_requests, format_amount, format_minute, format_positive
from controller.cli.render.output import Cell, Column, OutputStyle, paragraph, table
from controller.cli.render.plan import PendingReport, StartReport, object_path
from controller.cli.render.queues import QueueReport, QueueShareReport

_INDENT = 2

_MAX_SHOWN = 5

_SHARE_COLUMNS = (
    Column("QUEUE"),
    Column("RESOURCE"),
    Column("USED", right=True),
    Column("FAIR SHARE", right=True),
    Column("LIMIT", right=True),
)


class WorkloadAhead(msgspec.Struct, rename="camel", frozen=True):
    """A workload ahead of the explained one in its queue."""

    kind: str
    namespace: str
    name: str
    priority: int
    since: str | None
    reason: str
    raised_priority: int | msgspec.UnsetType = msgspec.UNSET
    """The priority as raised by waiting (O10); left out where it is not raised."""


class Guarantee(msgspec.Struct, frozen=True):
    """Guarantee of another queue for an insufficient resource."""

    queue: str
    amount: str


class UnmetRequirement(msgspec.Struct, rename="camel", frozen=True):
    """One requirement that is not met."""

    reason: str
    """The code of the pending reason."""
    queue: str | None
    cluster: str | None
    resource: str | None
    requests: str | None
    """Null, here and below, where the reason has no amounts."""
    free: str | None
    """Negative where more is charged than there is."""
    lacks: str | None
    guaranteed_to_others: tuple[Guarantee, ...]
    """The guarantees that reduce what is free."""
    message: str


class RemedyStep(msgspec.Struct, rename={"before": "from", "after": "to"}, frozen=True):
    """One change of a remedy: the field of a queue or cluster, with the amounts before and after."""

    change: str
    """A change that ``plan --what-if`` accepts."""
    before: str
    after: str


class CandidateReport(msgspec.Struct, rename="camel", frozen=True):
    """One cluster, evaluated for one workload."""

    name: str
    candidate: bool
    exclusion: str | None
    """Why it does not match the workload, as a code; null for a candidate."""
    problem: str
    """The same in words, or why a candidate admits nothing now; empty if neither."""
    free: Amounts
    lacks: Amounts
    """What is missing there."""
    replicas: int | None = None
    """Replicas that fit; null where it has none."""


class ReservationReport(msgspec.Struct, rename="camel", frozen=True):
    """Capacity and quota reserved for a pending workload."""

    since: str
    clusters: tuple[str, ...]
    """Empty while none is chosen."""
    promised_start: str | None


class PendingState(msgspec.Struct, rename="camel", frozen=True):
    """State of a pending workload."""

    reason: str
    """The code of the reason."""
    message: str
    remedy: str
    """What would admit it."""
    missing: tuple[UnmetRequirement, ...]
    """The unmet requirements in the order in which they are checked, the reason first."""
    changes: tuple[RemedyStep, ...] | None
    """Exactly these changes admit it, as the engine has tried; null if none were found."""
    complete: bool
    """Whether they also admit all workloads ahead of it."""
    position: int
    """Position in its queue, from 1."""
    of: int
    """Pending workloads in its queue."""
    before: tuple[WorkloadAhead, ...]
    """The workloads ahead of it in its queue."""
    clusters: tuple[CandidateReport, ...]
    """All clusters, candidates first."""
    reservation: ReservationReport | None = None
    """Its head reservation (O6)."""


class ClusterCharge(msgspec.Struct, frozen=True):
    """Charge of the workload on one cluster."""

    name: str
    charge: Amounts


class AdmittedState(msgspec.Struct, rename="camel", frozen=True):
    """Clusters and charge of an admitted workload."""

    clusters: tuple[ClusterCharge, ...]
    charge: Amounts
    pending_resize: Amounts | None
    """Its charge at its admission, if it was resized since (D7)."""
    since: str | None
    """When it was admitted; null if unknown."""
    adopted: bool
    """Whether it runs without an admission (D10)."""
    now: bool
    """Whether this plan admits it."""
    apply_errors: Mapping[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Why Karmada cannot apply it, by cluster; absent where it can. No status is reported from there (R1)."""


class WorkloadQueue(msgspec.Struct, rename="camel", frozen=True):
    """The queue of a workload."""

    name: str
    path: tuple[str, ...]
    """Queue names from the root; empty if the queue is not connected to the root."""
    exists: bool
    state: str
    weight: int
    priority: int
    shares: tuple[QueueShareReport, ...]
    """The shares of the queue, then those of its ancestors, the root last."""
    similar_names: tuple[str, ...]
    """Similar names of existing queues, if the queue does not exist."""
    notes: tuple[str, ...] = ()
    """What the fair share counts and the workloads of the queue cannot use."""


class PublishedEvent(msgspec.Struct, rename="camel", frozen=True):
    """One event that the controller recorded for a workload."""

    last: str
    reason: str
    note: str
    count: int


class CounterfactualReport(msgspec.Struct, rename={"before": "from", "after": "to"}, frozen=True):
    """A change that admits the workload now."""

    change: str
    """A change that ``plan --what-if`` accepts."""
    dimension: str
    """``requests``, ``queue``, ``priority``, ``quota``, ``capacity``, ``placement`` or ``completion``."""
    before: str
    after: str


class DataReport(msgspec.Struct, rename="camel", frozen=True):
    """A data set that restricts the clusters of a workload, or that it prefers."""

    claim: str
    data: str
    source: str | None
    """The DataSource; null while the claim is not bound."""
    clusters: tuple[str, ...]
    preferred: bool


class Explanation(msgspec.Struct, rename="camel", frozen=True):
    """One workload."""

    kind: str
    namespace: str
    name: str
    state: str
    """``Pending``, ``Admitted`` or ``Finished``."""
    priority: int
    priority_class: str
    unknown_class: bool
    """Whether its PriorityClass does not exist, so that the default one counts."""
    since: str | None
    """Creation of the template, which is its age in the queue; null if unknown."""
    requests: Amounts
    gang: Amounts
    """The gang minimum: the requests that must fit at the same time."""
    copies: int
    """To how many clusters its placement sends it whole (D5)."""
    queue: WorkloadQueue
    waiting: PendingState | None
    """Set for a pending workload."""
    running: AdmittedState | None
    """Set for an admitted workload."""
    finished_on: tuple[str, ...]
    """Where a finished workload ran."""
    raised_priority: int | msgspec.UnsetType = msgspec.UNSET
    """The priority as raised by waiting (O10); left out where it is not raised."""
    start: StartReport | None = None
    """Forecast of its start; null where it is not pending, no run time is known, or it starts in too few futures."""
    events: tuple[PublishedEvent, ...] | msgspec.UnsetType = msgspec.UNSET
    """Its recorded events, the latest last; from the live control plane only."""
    data: tuple[DataReport, ...] | msgspec.UnsetType = msgspec.UNSET
    """The data that its DataSourceClaims name; left out without claims."""
    evicted: str | None = None
    """Eviction reason, if this plan evicts it; until then it is admitted. Null otherwise."""
    counterfactuals: tuple[CounterfactualReport, ...] | None = None
    """The least single changes that admit a pending workload now; null for another one."""
    counterfactuals_complete: bool = True
    """False where changes of quota and capacity were left out, because very many workloads are pending."""


class ReasonCount(msgspec.Struct, frozen=True):
    """Number of pending workloads with one reason."""

    reason: str
    count: int


class QueueExplanation(msgspec.Struct, rename="camel", frozen=True):
    """One queue: its settings, current usage and limits, and the pending workloads of the queue itself."""

    queue: QueueReport
    capability: Amounts
    guarantee: Amounts
    deserved: Amounts
    children: tuple[str, ...]
    ancestors: tuple[QueueShareReport, ...]
    """The current shares of its ancestors, the root last."""
    reasons: tuple[ReasonCount, ...]
    """Why workloads are pending after the next cycle, the most frequent reason first."""
    first: tuple[PendingReport, ...]
    """The first pending workloads after the next cycle."""
    notes: tuple[str, ...]


def explanation_text(explanation: Explanation, style: OutputStyle) -> str:
    """Format *explanation* as text with a section for each aspect."""
    pending, admitted, queue = explanation.waiting, explanation.running, explanation.queue
    path = f"{explanation.kind} {object_path(explanation.namespace, explanation.name)}"
    parts = [paragraph(Cell(f"{path} {_state(explanation)}.", "bold"), style)]
    if pending:
        parts.append(_section("Why it is pending", _pending_lines(pending), style))
    if explanation.start:
        parts.append(_section("When it starts", _start_lines(explanation.start), style))
    if admitted:
        parts.append(_section("Where it runs", _admission_lines(admitted, queue), style))
    if explanation.data:
        parts.append(_section("Data", map(_data_line, explanation.data), style))
    if explanation.counterfactuals is not None:
        lines = _counterfactual_lines(explanation)
        parts.append(_section("Single changes that would admit it now", lines, style))
    parts.append(_section("Requests", _request_lines(explanation), style))
    parts.append(_section("Queue", [_queue_line(queue)], style) + _share_table(queue, explanation.requests, style))
    if pending:
        parts[-1] += "".join(f"\n{paragraph(_sentence(note), style, indent=_INDENT)}" for note in queue.notes)
    if pending:
        parts.append(_section("Ahead in the queue", _ahead_lines(pending), style))
        parts.append(_section("Clusters", _cluster_lines(pending.clusters), style))
    if explanation.events:
        parts.append(_section("Events", map(_event, explanation.events), style))
    return "\n\n".join(parts)


DIMENSIONS = {
    "requests": "smaller requests",
    "queue": "another queue",
    "priority": "a higher priority",
    "quota": "more quota",
    "capacity": "more capacity",
    "placement": "another placement",
    "completion": "after other workloads finish",
}


def _counterfactual_lines(explanation: Explanation) -> Iterator[str]:
    counterfactuals = explanation.counterfactuals or ()
    for counterfactual in counterfactuals:
        before = "" if counterfactual.dimension == "completion" else f" (from {counterfactual.before})"
        yield f"- {DIMENSIONS[counterfactual.dimension]}: {_shell_argument(counterfactual.change)}{before}"
    if not explanation.counterfactuals_complete:
        yield "Not all changes of quota and capacity were tried, because very many workloads are pending."
    elif not counterfactuals:
        yield "No single change admits it now."


def _shell_argument(change: str) -> str:
    """Return *change* so that it can be pasted after ``--what-if`` in a shell; in double quotes where these suffice."""
    quoted = shlex.quote(change)
    return quoted if quoted == change or set(change) & set('"$`\\!') else f'"{change}"'


def _data_line(data: DataReport) -> str:
    where = f"held by {', '.join(data.clusters) or 'no cluster'}" if data.source else "not located yet"
    return f"- {data.data}, {where} (claim {data.claim}{', only preferred' if data.preferred else ''})"


def _event(event: PublishedEvent) -> str:
    times = f", {event.count} times" if event.count > 1 else ""
    return f"{event.last or 'at an unknown time'} {event.reason}{times}: {event.note}."


def _section(title: str, sentences: Iterable[str], style: OutputStyle) -> str:
    lines = (paragraph(sentence, style, indent=_INDENT) for sentence in sentences)
    return "\n".join([paragraph(Cell(f"{title}:", "bold"), style), *lines])


def _state(explanation: Explanation) -> str:
    pending, admitted = explanation.waiting, explanation.running
    if pending:
        place = f"pending in queue '{explanation.queue.name}' at position {pending.position} of {pending.of}"
        if explanation.evicted is None:
            return f"is {place}"
        return f"is admitted, and evicted by this scheduling cycle ({explanation.evicted}); then it is {place}"
    if admitted and admitted.now:
        return "is admitted by this scheduling cycle"
    if admitted:
        return "is admitted" + (f" since {format_minute(admitted.since)} UTC" if admitted.since else "")
    if explanation.state == "Pending":
        return f"is pending in queue '{explanation.queue.name}'; a later cycle decides about it"
    where = f" on {', '.join(explanation.finished_on)}" if explanation.finished_on else ""
    return f"has finished{where}; its usage is zero"


def _pending_lines(pending: PendingState) -> Iterator[str]:
    yield f"{pending.reason}: {pending.message}."
    if len(pending.missing) > 1 or any(unmet.lacks for unmet in pending.missing):
        yield "All unmet requirements, in the order in which they are checked:"
        # Two reasons may have the same text: that of a part of a HyperJob, and that of its cluster.
        yield from dict.fromkeys(f"- {unmet.message}" for unmet in pending.missing)
    yield f"What would admit it: {pending.remedy}."
    if pending.reservation:
        yield from _reservation_lines(pending.reservation)


def _reservation_lines(reservation: ReservationReport) -> Iterator[str]:
    where = f" on {', '.join(reservation.clusters)}" if reservation.clusters else ""
    yield f"Capacity is reserved for it{where} since {format_minute(reservation.since)} UTC."
    if reservation.promised_start:
        yield f"When it was reserved, the start was expected by {format_minute(reservation.promised_start)} UTC."


def _start_lines(start: StartReport) -> Iterator[str]:
    unknown = "a time after 24 hours" if start.complete else "a time later than could be simulated"
    median, latest = (f"{format_minute(at)} UTC" if at else unknown for at in (start.p50, start.p90))
    yield f"Probably by {median}, with 80 % probability between {format_minute(start.p10)} UTC and {latest}."
    if start.after:
        yield f"It waits for {', '.join(start.after)}."


def _admission_lines(admitted: AdmittedState, queue: WorkloadQueue) -> Iterator[str]:
    for part in admitted.clusters:
        yield f"{part.name}, charged with {_format_amounts(part.charge)}."
    for cluster, error in (admitted.apply_errors or {}).items():
        yield f"{cluster} does not accept it, or its last change, and reports no status: {error}."
    used = queue.shares[0].allocated if queue.shares else {}
    shares = [
        " of ".join(format_positive(name, parse_quantity(name, amounts[name])) for amounts in (admitted.charge, used))
        + f" {name}"
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
        yield "It was not admitted: it ran before the installation, or others started it. It is never evicted."


def _exceeded_limit_lines(queue: WorkloadQueue) -> Iterator[str]:
    """Yield a sentence for each of its queues with usage above the limit."""
    for standing in queue.shares:
        over = {
            name: f"{format_amount(name, standing.allocated)} {name} of {format_amount(name, standing.limit)}"
            for name in standing.allocated
            if name in standing.limit
            and parse_quantity(name, standing.allocated[name]) > parse_quantity(name, standing.limit[name])
        }
        if over:
            yield (
                f"Queue '{standing.name}' uses {', '.join(over.values())}; it admits nothing that requests "
                f"{' or '.join(over)} while usage exceeds the limit."
            )


def _request_lines(explanation: Explanation) -> Iterator[str]:
    yield f"{_format_amounts(explanation.requests)}{_gang(explanation)}."
    if explanation.copies > 1 and explanation.waiting:
        yield f"Its placement duplicates it to {explanation.copies} clusters; each copy is charged."
    age = f"queued since {format_minute(explanation.since)} UTC" if explanation.since else "its age is unknown"
    yield f"Priority {explanation.priority}{_class(explanation)}{_raised(explanation)}; {age}."


def _gang(explanation: Explanation) -> str:
    if explanation.gang == explanation.requests:
        return ", all pods at once" if explanation.requests else ""
    return f"; {_format_amounts(explanation.gang)} must be placed together"


def _raised(workload: Explanation | WorkloadAhead) -> str:
    raised = workload.raised_priority
    return "" if raised is msgspec.UNSET else f", raised to {raised} by waiting"


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
    rows = [row for share in queue.shares for row in _amount_rows(share) if row[1] in asked]
    if not rows:
        return ""
    lines = table(_SHARE_COLUMNS, rows, style).splitlines()
    return "".join(f"\n{' ' * _INDENT}{line}" for line in lines)


def _ahead_lines(pending: PendingState) -> Iterator[str]:
    yield from map(_ahead_line, pending.before[:_MAX_SHOWN])
    more = len(pending.before) - _MAX_SHOWN
    if more > 0:
        yield f"And {more} more."
    if not pending.before:
        yield "No workload."


def _ahead_line(workload: WorkloadAhead) -> str:
    path = f"{workload.kind} {object_path(workload.namespace, workload.name)}"
    return f"{path} with priority {workload.priority}{_raised(workload)}: {workload.reason}."


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
        f"{format_positive(name, parse_quantity(name, amount))} {name} ({format_amount(name, candidate.free)} free)"
        for name, amount in candidate.lacks.items()
    )
    return f"lacks {' and '.join(lacks)}"


def _format_amounts(amounts: Amounts) -> str:
    return describe_requests({name: parse_quantity(name, amount) for name, amount in amounts.items()})


def queue_text(report: QueueExplanation, style: OutputStyle) -> str:
    """Format the explanation of a queue as text."""
    queue = report.queue
    path = " > ".join(queue.path) or f"{queue.name}, outside the hierarchy,"
    head = f"Queue {path} is {queue.state}, weight {queue.weight}, priority {queue.priority}."
    parts = [paragraph(Cell(head, "bold"), style)]
    settings = [
        f"{title}: {_format_amounts(amounts)}."
        for title, amounts in (
            ("Capability", report.capability),
            ("Guarantee", report.guarantee),
            ("Deserved", report.deserved),
        )
        if amounts
    ]
    parts.append(_section("Settings", settings or ["No capability, guarantee or deserved share."], style))
    rows = [*_amount_rows(queue), *(row for share in report.ancestors for row in _amount_rows(share))]
    usage = table(_SHARE_COLUMNS, rows, style).splitlines()
    below = f", with queues {', '.join(report.children)} below it" if report.children else ""
    counts = f"{queue.admitted} admitted and {queue.pending} pending workloads{below}."
    lines = [_section("Usage now", [counts], style), *(f"{' ' * _INDENT}{line}" for line in usage)]
    lines += [paragraph(_sentence(note), style, indent=_INDENT) for note in report.notes]
    parts.append("\n".join(lines))
    if queue.next_cycle is not None:
        after = queue.next_cycle
        effect = f"{after.admitted} admitted, {after.evicted} evicted; then {after.pending} pending."
        parts.append(_section("Next cycle", [effect], style))
    if report.reasons:
        reasons = (f"{count.reason}: {count.count}." for count in report.reasons)
        parts.append(_section("Pending reasons", reasons, style))
        first = (
            f"{workload.position}. {object_path(workload.namespace, workload.name)}: {workload.message}."
            for workload in report.first
        )
        parts.append(_section("First in the queue", first, style))
    return "\n\n".join(parts)


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}."


def _amount_rows(share: QueueShareReport | QueueReport) -> Iterator[tuple[str, ...]]:
    for name in share.allocated:
        amounts = [format_amount(name, by_resource) for by_resource in (share.allocated, share.fair_share, share.limit)]
        if name not in share.limited and name in share.limit:
            amounts[2] = "no limit"
        yield share.name, name, *amounts
