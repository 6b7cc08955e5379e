"""A simulation as a table for people, readable at 80 columns."""

from collections.abc import Iterator, Sequence

from controller.cli.output import Cell, Column, OutputStyle, paragraph, table
from controller.cli.report.simulation import PerPodReport, SimulationReport
from controller.simulator.idle import Cause
from controller.simulator.summary import (
    LongWait,
    NeverAdmitted,
    Number,
    QueueSummary,
    ReasonWaits,
    Summary,
    Waits,
)

_MAX_QUEUES = 40
_MAX_JOBS = 20
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_TENTH = 0.1
_MEASURES = ("MEAN", "P50", "P99", "HELD", "DUE", "OFF", "MOST", "GOT")
_LEGEND = (
    "MEAN, P50, P99: how long jobs waited. HELD, DUE: {resource} that the queue was charged with and entitled to, "
    "in percent of all there was, on the average over time. OFF, MOST: the distance between the two, on the average "
    "and at most. GOT: resource-time that ran, in percent of what the queue was entitled to."
)


def simulation_table(report: SimulationReport, screen: OutputStyle) -> str:
    """Return the figures, queue by queue, who was never admitted, and the comparison."""
    parts = [_figures(report.summary, screen), _queues(report.summary, screen)]
    if report.summary.waiting_by_reason:
        parts.append(_reasons(report.summary.waiting_by_reason, screen))
    if report.summary.longest_waits:
        parts.append(_longest(report.summary.longest_waits, screen))
    if report.summary.never_admitted:
        parts.append(_never_admitted(report.summary.never_admitted, screen))
    if report.per_pod:
        parts.append(paragraph(_compared(report.summary, report.per_pod), _narrow(screen)))
    return "\n\n".join(parts)


def format_duration(seconds: Number) -> str:
    """Return a span of time for people, with two units at most; up to two minutes in seconds."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + "s"
    whole = round(seconds)
    for unit, part, names in ((_DAY, _HOUR, "dh"), (_HOUR, _MINUTE, "hm"), (_MINUTE, 1, "ms")):
        if whole >= unit:
            return f"{whole // unit}{names[0]}{whole % unit // part:02}{names[1]}"
    return f"{whole}s"


def _figures(summary: Summary, screen: OutputStyle) -> str:
    jobs = summary.jobs
    counts = f"{jobs.submitted} submitted, {jobs.finished} finished, {jobs.running} running, {jobs.waiting} waiting"
    rows = [
        ("Jobs", counts),
        ("Makespan", _or_dash(summary.makespan)),
        ("Waited", _waited(summary.waiting)),
        ("Used", ", ".join(f"{_percent(part)} {name}" for name, part in _by_size(summary)) or "-"),
        *zip(("Idle", *[""] * len(Cause)), _idle(summary) or ["-"], strict=False),
        ("Fairness", _fairness(summary)),
        ("Evictions", str(summary.evictions)),
    ]
    lines = table([Column(""), Column("")], [(Cell(title, "bold"), text) for title, text in rows], screen)
    return "\n".join(lines.splitlines()[1:])


def _by_size(summary: Summary) -> list[tuple[str, float]]:
    return sorted(summary.utilisation.items(), key=lambda pair: (-pair[1], pair[0]))


def _main(summary: Summary) -> str:
    """Return the resource that was used most."""
    return next((name for name, _ in _by_size(summary)), "cpu")


def _fairness(summary: Summary) -> str:
    """Return the index with how much was used: of what nobody competes for any division is fair."""
    if not summary.fairness:
        return "-"
    name = _main(summary)
    used = f"{_percent(summary.utilisation.get(name, 0))} {name} used"
    return f"{summary.fairness:g} at {used} (Jain's index of satisfaction)"


def _idle(summary: Summary) -> list[str]:
    """Return why the resource that was used most was idle, the largest part first."""
    name = _main(summary)
    causes = sorted(summary.idle.get(name, {}).items(), key=lambda item: (-item[1], item[0]))
    return [f"{_percent(part)} {name}, {_CAUSES[Cause(cause)]}" for cause, part in causes]


_CAUSES = {
    Cause.HELD: "held for preemptors",
    Cause.RESERVED: "reserved for blocked jobs",
    Cause.GUARANTEED: "guaranteed to idle queues",
    Cause.NOTHING_PENDING: "nothing pending",
    Cause.LIMITED: "queue limits",
    Cause.FRAGMENTED: "fragmented",
}


def _reasons(reasons: Sequence[ReasonWaits], screen: OutputStyle) -> str:
    """Return how long jobs waited for each reason, in all."""
    columns = [Column("WAITED FOR"), Column("JOBS", right=True), Column("TIME", right=True), Column("PART", right=True)]
    whole = sum(each.time for each in reasons)
    rows = [
        (each.reason or "the write", str(each.jobs), format_duration(each.time), _percent(each.time / whole))
        for each in reasons
    ]
    return table(columns, rows, screen)


def _longest(waits: Sequence[LongWait], screen: OutputStyle) -> str:
    columns = [Column("WAITED LONGEST"), Column("QUEUE"), Column("TIME", right=True), Column("MOSTLY FOR")]
    rows = [
        (f"{each.namespace}/{each.name}", each.queue, format_duration(each.time), each.reason or "the write")
        for each in waits
    ]
    return table(columns, rows, screen)


def _waited(waits: Waits | None) -> str:
    if waits is None:
        return "-"
    mean, p50, p99, longest = map(format_duration, (waits.mean, waits.p50, waits.p99, waits.max))
    return f"mean {mean}, p50 {p50}, p99 {p99}, at most {longest}"


def _queues(summary: Summary, screen: OutputStyle) -> str:
    """Return a row for each queue with jobs; of many, those that waited longest."""
    resource = next((name for name, _ in _by_size(summary)), "cpu")
    found = [queue for queue in summary.queues if queue.submitted]
    shown = found
    if len(found) > _MAX_QUEUES:
        longest = sorted(found, key=lambda queue: (-(queue.waiting.p99 if queue.waiting else 0), queue.name))
        shown = longest[:_MAX_QUEUES]
    is_done = all(queue.finished == queue.submitted for queue in found)
    columns = [Column("QUEUE"), *(Column(title, right=True) for title in _titles(is_done=is_done))]
    rows = [_queue(queue, resource, is_done=is_done) for queue in shown]
    more = f"\nand {len(found) - len(shown)} more queues that waited no longer" if len(shown) < len(found) else ""
    legend = paragraph(_LEGEND.format(resource=resource), _narrow(screen))
    return f"{table(columns, rows, screen)}{more}\n\n{legend}"


def _titles(*, is_done: bool) -> Sequence[str]:
    """Return the titles beside the queue's; how many are done is no news where all are."""
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
        _percent(queue.held.get(resource, 0)),
        _percent(queue.entitled.get(resource, 0)),
        _percent(deviation.mean if deviation else 0),
        _percent(deviation.max if deviation else 0),
        "" if queue.satisfaction is None else _percent(queue.satisfaction),
    )


def _never_admitted(jobs: Sequence[NeverAdmitted], screen: OutputStyle) -> str:
    columns = [Column("NEVER ADMITTED"), Column("QUEUE"), Column("SINCE", right=True), Column("REASON")]
    rows = [
        (f"{each.namespace}/{each.name}", each.queue, format_duration(each.since), Cell(each.reason or "", "yellow"))
        for each in jobs[:_MAX_JOBS]
    ]
    more = f"\nand {len(jobs) - _MAX_JOBS} more" if len(jobs) > _MAX_JOBS else ""
    return f"{table(columns, rows, screen)}{more}"


def _compared(summary: Summary, per_pod: PerPodReport) -> str:
    return " ".join(_comparison(summary, per_pod))


def _comparison(summary: Summary, per_pod: PerPodReport) -> Iterator[str]:
    yield f"Whole jobs: {summary.jobs.finished} of {summary.jobs.submitted} finished."
    yield f"Pod by pod, in the random order of seed {per_pod.seed}: {per_pod.finished} of {per_pod.jobs} finished."
    if per_pod.deadlocked:
        yield (
            f"Deadlock: {per_pod.jobs_stuck} jobs hold room with {per_pod.pods_in_vain} pods and keep each other "
            "from starting."
        )


def _percent(part: float) -> str:
    """Return *part* in percent, small ones with a decimal, so that many queues can be told apart."""
    return f"{100 * part:.{0 if part >= _TENTH or not part else 1}f}%"


def _or_dash(seconds: Number | None) -> str:
    return "-" if seconds is None else format_duration(seconds)


def _narrow(screen: OutputStyle) -> OutputStyle:
    """Return a screen on which sentences stay readable where lines may have any length."""
    return OutputStyle(min(screen.width or _TEXT_WIDTH, _TEXT_WIDTH), screen.coloured)


_TEXT_WIDTH = 80
