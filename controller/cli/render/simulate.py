"""The report of a simulation, and its tables, which are readable at 80 columns."""

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

import msgspec

from controller.cli.render.output import Cell, Column, OutputStyle, paragraph, table
from controller.cli.render.plan import ClusterTarget, object_path
from controller.simulator.comparison import VariantFigures
from controller.simulator.metrics import IdleCause
from controller.simulator.per_pod import PerPodReport
from controller.simulator.summary import (
    LongWait,
    NeverAdmitted,
    Number,
    QueueSummary,
    ReasonWaits,
    Summary,
    WaitTimes,
)


class SimulationEvent(msgspec.Struct, frozen=True):
    """One event of the simulation, ``time`` seconds after the start."""

    time: Number
    action: str
    kind: str
    namespace: str
    name: str
    queue: str
    clusters: tuple[ClusterTarget, ...]
    reason: str | None
    message: str


class SimulationWhatIf(msgspec.Struct, frozen=True):
    """The changes of ``--what-if``, and the summary without them."""

    changes: tuple[str, ...]
    before: Summary


class SimulationReport(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """Events in order and summary of a simulation; the other fields are set if they were requested."""

    events: tuple[SimulationEvent, ...]
    summary: Summary
    per_pod: PerPodReport | None = None
    what_if: SimulationWhatIf | None = None
    backfill: tuple[VariantFigures, ...] | None = None
    """The same jobs with other ways to treat large ones."""


_MAX_QUEUES = 40
_MAX_JOBS = 20
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_TENTH = 0.1

#: Sizes of the chart in pixels.
_WIDTH, _LABEL, _ROW, _TITLE, _VALUE = 640, 120, 22, 30, 110
_MEASURES = ("MEAN", "P50", "P99", "USED", "FAIR", "GAP", "MAX", "SAT")

_LEGEND = (
    "MEAN, P50, P99: waiting time of jobs. USED, FAIR: usage and fair share of {resource} in percent of the total "
    "capacity, averaged over time. GAP, MAX: mean and maximum distance between usage and fair share. "
    "SAT: satisfaction, the resource-time of running jobs in percent of the fair share."
)

_VARIANT_LEGEND = (
    "configured: as the configuration says. traverse: smaller jobs always pass. reservations: without backfill. "
    "easy: textbook EASY backfill with exact run times. MEAN, P99: waiting time of all jobs; P99 LARGE: of the largest "
    "5 %. USED: {resource} used. RESERVED: {resource} hours idle for reservations while other jobs wait for them."
)


def simulation_table(report: SimulationReport, style: OutputStyle) -> str:
    """Format the totals, the queues, pending reasons, jobs that were never admitted, and the comparison."""
    parts = [] if report.what_if is None else [_difference(report.what_if, report.summary, style)]
    parts += [_figures(report.summary, style), _queues(report.summary, style)]
    if report.summary.waiting_by_reason:
        parts.append(_reasons(report.summary.waiting_by_reason, style))
    if report.summary.longest_waits:
        parts.append(_longest(report.summary.longest_waits, style))
    if report.summary.never_admitted:
        parts.append(_never_admitted(report.summary.never_admitted, style))
    if report.per_pod:
        parts.append(paragraph(" ".join(_comparison(report.summary, report.per_pod)), _narrow(style)))
    if report.backfill:
        parts.append(_variants(report.backfill, style))
    return "\n\n".join(parts)


def _variants(variants: Sequence[VariantFigures], style: OutputStyle) -> str:
    """Return a table of the ways to treat large jobs."""
    titles = ("MEAN", "P99", "P99 LARGE", "USED", "RESERVED", "DONE")
    columns = [Column("COMPARED"), *(Column(title, right=True) for title in titles)]
    rows = [
        (variant.variant, *(text for _, _, text in _measures(variant)), str(variant.finished)) for variant in variants
    ]
    legend = paragraph(_VARIANT_LEGEND.format(resource=variants[0].resource), _narrow(style))
    return f"{table(columns, rows, style)}\n\n{legend}"


def variant_chart(variants: Sequence[VariantFigures]) -> str:
    """Return the comparison as an SVG image: the bars of each measure have a scale of their own."""
    title, lines, top = "Backfill compared", list[str](), _TITLE + _ROW
    for bars in zip(*map(_measures, variants), strict=True):
        lines.append(_svg_text(0, top, bars[0][0], "bold"))
        top += _ROW
        largest = max(value for _, value, _ in bars) or 1
        for variant, (_, value, text) in zip(variants, bars, strict=True):
            width = (_WIDTH - _LABEL - _VALUE) * value / largest
            lines.append(_svg_text(0, top, variant.variant))
            lines.append(f'<rect x="{_LABEL}" y="{top - 13}" width="{width:.1f}" height="16" fill="#4477aa"/>')
            lines.append(_svg_text(_LABEL + width + 6, top, text))
            top += _ROW
        top += _ROW // 2
    body = "\n".join([f"<title>{title}</title>", _svg_text(0, _TITLE - 10, title, "bold"), *lines])
    size = f'width="{_WIDTH}" height="{top}" viewBox="-10 0 {_WIDTH + 20} {top}"'
    style = 'font-family="sans-serif" font-size="13"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{body}\n</svg>\n'


def _svg_text(x: float, y: float, text: str, weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-weight="{weight}">{escape(text)}</text>'


def _measures(figures: VariantFigures) -> list[tuple[str, float, str]]:
    """Return the title, value and text of each measure."""
    waits = {
        "Mean waiting time": figures.mean_wait,
        "99th percentile of the waiting time": figures.p99_wait,
        "99th percentile, largest 5 % of the jobs": figures.largest_p99_wait,
    }
    used, reserved = 100 * figures.utilisation, figures.reserved_hours
    return [
        *((title, value, format_duration(value)) for title, value in waits.items()),
        (f"Used {figures.resource}", used, f"{used:.1f}%"),
        (f"Idle for reservations, {figures.resource} hours", reserved, f"{reserved:.1f}h"),
    ]


def format_duration(seconds: Number) -> str:
    """Format a duration with at most two units; below two minutes in seconds."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + "s"
    whole = round(seconds)
    for unit, part, names in ((_DAY, _HOUR, "dh"), (_HOUR, _MINUTE, "hm"), (_MINUTE, 1, "ms")):
        if whole >= unit:
            return f"{whole // unit}{names[0]}{whole % unit // part:02}{names[1]}"
    return f"{whole}s"


def _figures(summary: Summary, style: OutputStyle) -> str:
    jobs = summary.jobs
    counts = f"{jobs.submitted} submitted, {jobs.finished} finished, {jobs.running} running, {jobs.waiting} waiting"
    rows = [
        ("Jobs", counts),
        ("Makespan", _or_dash(summary.makespan)),
        ("Waited", _waited(summary.waiting)),
        ("Used", ", ".join(f"{_percent(part)} {name}" for name, part in _by_size(summary)) or "-"),
        *zip(("Idle", *[""] * len(IdleCause)), _idle(summary) or ["-"], strict=False),
        *((f"Kept free for {name}", hours) for name, hours in _idle_hours(summary)),
        ("Fairness", _fairness(summary)),
        ("Evictions", str(summary.evictions)),
    ]
    lines = table([Column(""), Column("")], [(Cell(title, "bold"), text) for title, text in rows], style)
    return "\n".join(lines.splitlines()[1:])


def _difference(what_if: SimulationWhatIf, after: Summary, style: OutputStyle) -> str:
    """Return the changes, and a table of the figures without and with them."""
    columns = [Column("WHAT IF"), Column("BEFORE", right=True), Column("AFTER", right=True)]
    both = what_if.before, after
    resource = _main(after)
    rows = [
        ("Jobs finished", *(str(summary.jobs.finished) for summary in both)),
        ("Jobs waiting", *(str(summary.jobs.waiting) for summary in both)),
        ("Makespan", *(_or_dash(summary.makespan) for summary in both)),
        *(
            (f"Waited, {name}", *(_or_dash(getattr(summary.waiting, name, None)) for summary in both))
            for name in ("mean", "p50", "p99", "max")
        ),
        (f"Used {resource}", *(_percent(summary.utilisation.get(resource, 0)) for summary in both)),
        ("Fairness", *(f"{summary.fairness:g}" if summary.fairness else "-" for summary in both)),
        ("Evictions", *(str(summary.evictions) for summary in both)),
    ]
    changes = "\n".join(f"What if {change}:" for change in what_if.changes)
    return f"{changes}\n\n{table(columns, rows, style)}\n\nWith the changes:"


def _by_size(summary: Summary) -> list[tuple[str, float]]:
    return sorted(summary.utilisation.items(), key=lambda pair: (-pair[1], pair[0]))


def _main(summary: Summary) -> str:
    """Return the resource with the highest utilisation."""
    return next((name for name, _ in _by_size(summary)), "cpu")


def _fairness(summary: Summary) -> str:
    """Return the fairness index with the utilisation, because without contention the index says little."""
    if not summary.fairness:
        return "-"
    name = _main(summary)
    used = f"{_percent(summary.utilisation.get(name, 0))} {name} used"
    return f"{summary.fairness:g} at {used} (Jain's index of satisfaction)"


def _idle(summary: Summary) -> list[str]:
    """Return why the resource with the highest utilisation was idle, the largest fraction first."""
    name = _main(summary)
    causes = sorted(summary.idle.get(name, {}).items(), key=lambda item: (-item[1], item[0]))
    return [f"{_percent(part)} {name}, {_CAUSES[IdleCause(cause)]}" for cause, part in causes]


def _idle_hours(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield each advance reservation with the hours for which it left CPUs and devices idle."""
    by_name = summary.idle_hours
    for name, hours in by_name.items() if by_name is not msgspec.UNSET else ():
        amounts = ", ".join(f"{value:g} {resource} hours" for resource, value in hours.items())
        yield name, f"{amounts or 'nothing'} idle"


_CAUSES = {
    IdleCause.NOMINATED: "nominated to preemptors",
    IdleCause.RESERVED: "reserved for blocked jobs",
    IdleCause.GUARANTEED: "guaranteed to idle queues",
    IdleCause.NOTHING_PENDING: "nothing pending",
    IdleCause.LIMITED: "queue limits",
    IdleCause.FRAGMENTED: "fragmented",
}


def _reasons(reasons: Sequence[ReasonWaits], style: OutputStyle) -> str:
    """Return a table of the total waiting time for each reason."""
    columns = [Column("REASON"), Column("JOBS", right=True), Column("TIME", right=True), Column("PART", right=True)]
    total_time = sum(reason.time for reason in reasons)
    rows = [
        (
            reason.reason or "API write",
            str(reason.jobs),
            format_duration(reason.time),
            _percent(reason.time / total_time),
        )
        for reason in reasons
    ]
    return table(columns, rows, style)


def _longest(waits: Sequence[LongWait], style: OutputStyle) -> str:
    columns = [Column("WAITED LONGEST"), Column("QUEUE"), Column("TIME", right=True), Column("MOSTLY FOR")]
    rows = [
        (object_path(job.namespace, job.name), job.queue, format_duration(job.time), job.reason or "API write")
        for job in waits
    ]
    return table(columns, rows, style)


def _waited(waits: WaitTimes | None) -> str:
    if waits is None:
        return "-"
    mean, p50, p99, longest = map(format_duration, (waits.mean, waits.p50, waits.p99, waits.max))
    return f"mean {mean}, p50 {p50}, p99 {p99}, at most {longest}"


def _queues(summary: Summary, style: OutputStyle) -> str:
    """Return a row for each queue with jobs; if there are too many, for those that waited longest."""
    resource = next((name for name, _ in _by_size(summary)), "cpu")
    queues = [queue for queue in summary.queues if queue.submitted]
    shown = queues
    if len(queues) > _MAX_QUEUES:
        longest = sorted(queues, key=lambda queue: (-(queue.waiting.p99 if queue.waiting else 0), queue.name))
        shown = longest[:_MAX_QUEUES]
    is_done = all(queue.finished == queue.submitted for queue in queues)
    columns = [Column("QUEUE"), *(Column(title, right=True) for title in _titles(is_done=is_done))]
    rows = [_queue(queue, resource, is_done=is_done) for queue in shown]
    more = (
        f"\nand {len(queues) - len(shown)} more queues with shorter waiting times" if len(shown) < len(queues) else ""
    )
    legend = paragraph(_LEGEND.format(resource=resource), _narrow(style))
    return f"{table(columns, rows, style)}{more}\n\n{legend}"


def _titles(*, is_done: bool) -> Sequence[str]:
    """Return the column titles after that of the queue; finished jobs have a column only if some are unfinished."""
    return ("JOBS", *(() if is_done else ("DONE",)), *_MEASURES)


def _queue(queue: QueueSummary, resource: str, *, is_done: bool) -> Sequence[str]:
    waits, deviation = queue.waiting, queue.deviation.get(resource)
    return (
        queue.name,
        str(queue.submitted),
        *(() if is_done else (str(queue.finished),)),
        *(
            (format_duration(waits.mean), format_duration(waits.p50), format_duration(waits.p99))
            if waits
            else ("", "", "")
        ),
        _percent(queue.used.get(resource, 0)),
        _percent(queue.fair_share.get(resource, 0)),
        _percent(deviation.mean if deviation else 0),
        _percent(deviation.max if deviation else 0),
        "" if queue.satisfaction is None else _percent(queue.satisfaction),
    )


def _never_admitted(jobs: Sequence[NeverAdmitted], style: OutputStyle) -> str:
    columns = [Column("NEVER ADMITTED"), Column("QUEUE"), Column("SINCE", right=True), Column("REASON")]
    rows = [
        (object_path(job.namespace, job.name), job.queue, format_duration(job.since), Cell(job.reason or "", "yellow"))
        for job in jobs[:_MAX_JOBS]
    ]
    more = f"\nand {len(jobs) - _MAX_JOBS} more" if len(jobs) > _MAX_JOBS else ""
    return f"{table(columns, rows, style)}{more}"


def _comparison(summary: Summary, per_pod: PerPodReport) -> Iterator[str]:
    yield f"Whole jobs: {summary.jobs.finished} of {summary.jobs.submitted} finished."
    yield f"Pod by pod, in the random order of seed {per_pod.seed}: {per_pod.finished} of {per_pod.jobs} finished."
    if per_pod.deadlocked:
        pods = f"{per_pod.wasted_pods} pod{'' if per_pod.wasted_pods == 1 else 's'}"
        if per_pod.deadlocked_jobs == 1:
            yield f"Deadlock: 1 job holds capacity with {pods} and cannot start."
        else:
            yield f"Deadlock: {per_pod.deadlocked_jobs} jobs hold capacity with {pods}, and none of them can start."


def _percent(part: float) -> str:
    """Format *part* in percent, with a decimal below ten percent."""
    return f"{100 * part:.{0 if part >= _TENTH or not part else 1}f}%"


def _or_dash(seconds: Number | None) -> str:
    return "-" if seconds is None else format_duration(seconds)


def _narrow(style: OutputStyle) -> OutputStyle:
    """Limit the line width for paragraphs."""
    return OutputStyle(min(style.width or _TEXT_WIDTH, _TEXT_WIDTH), style.colored)


_TEXT_WIDTH = 80
