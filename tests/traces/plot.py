"""Plots the usage of queues and the number of pending jobs over virtual time.

Requires matplotlib, which is imported only when a plot is written.
"""

from collections.abc import Sequence
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from controller.engine.state.hierarchy import QueueName
from controller.engine.state.resources import Resources
from controller.simulator.metrics import ShareMetrics
from controller.simulator.simulation import SimulationResult

Steps = list[tuple[int, Fraction]]
"""Pairs of a time and the value from that time on."""


class TimeSeries:
    """Usage of each queue as a fraction of the total capacity, and the number of pending jobs."""

    def __init__(self) -> None:
        self.usage: dict[str, dict[QueueName, Steps]] = {}
        """Usage by resource and queue."""
        self.waiting: list[tuple[int, int]] = []

    def observe(self, metrics: ShareMetrics, pending: int, now: int) -> None:
        """Record the usage of all queues and the number of pending jobs from *now* on."""
        for name, queue in metrics.queues.items():
            self.record_usage(name, now, usage=queue.usage, capacity=metrics.capacity)
        self.record_pending(pending, now)

    def record_usage(self, queue: QueueName, now: int, *, usage: Resources, capacity: Resources) -> None:
        """Record the usage of *queue* from *now* on as a fraction of *capacity*."""
        for name, amount in capacity.items():
            fraction = Fraction(usage.get(name, 0), amount) if amount else Fraction(0)
            _append(self.usage.setdefault(name, {}).setdefault(queue, []), now, fraction)

    def record_pending(self, count: int, now: int) -> None:
        """Record the number of pending jobs from *now* on."""
        if not self.waiting or self.waiting[-1][1] != count:
            self.waiting.append((now, count))


def _append(steps: Steps, now: int, value: Fraction) -> None:
    if steps and steps[-1][0] == now:
        steps.pop()
    if not steps or steps[-1][1] != value:
        steps.append((now, value))


def values_at(steps: Sequence[tuple[int, Fraction]], times: Sequence[int]) -> list[Fraction]:
    """Return the value at each of *times*, which must ascend; 0 before the first step."""
    values, index = [], 0
    for time in times:
        while index < len(steps) and steps[index][0] <= time:
            index += 1
        values.append(steps[index - 1][1] if index else Fraction(0))
    return values


FORMATS = (".png", ".svg")

_MAX_QUEUES = 8

_WIDTH, _HEIGHT, _DOTS = 10, 7, 120

_POINTS = 2000

_UNITS = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "seconds"))

_MIN_UNITS = 3
"""Minimum number of units on the time axis; with fewer, the next smaller unit is used."""


class PlotError(Exception):
    """A plot cannot be written; the message says what to do."""


def check_plot(path: Path) -> None:
    """Raise `PlotError` if no plot can be written to *path*; called before a long simulation."""
    if path.suffix.lower() not in FORMATS:
        raise PlotError(f"{path}: the name of a plot must end in {' or '.join(FORMATS)}")
    if find_spec("matplotlib") is None:
        raise PlotError("plots require matplotlib; install it with: pip install matplotlib")
    if not path.absolute().parent.is_dir():
        raise PlotError(f"{path}: the folder {path.parent} does not exist")


def write_plot(series: TimeSeries, result: SimulationResult, path: Path) -> None:
    """Write a plot of *result* to *path*: usage of the largest queues above, pending jobs below."""
    resource = _main_resource(series, result)
    times = _times(result.ended_at)
    unit, name = _unit(result.ended_at)
    axis = [time / unit for time in times]
    figure = import_module("matplotlib.figure").Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    labels, bands = _bands(series, result, resource, times)
    upper.stackplot(axis, bands, labels=labels, step="post")
    upper.set(ylabel=f"{resource} used (% of capacity)", ylim=(0, 100), title="Usage of the queues")
    upper.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="small", reverse=True)
    lower.step(axis, [int(count) for count in values_at(_waiting(series), times)], where="post")
    lower.set(xlabel=f"virtual time ({name})", ylabel="pending jobs", xlim=(0, max(axis[-1], 1e-9)))
    lower.set_ylim(bottom=0)
    figure.savefig(path, dpi=_DOTS)


def _main_resource(series: TimeSeries, result: SimulationResult) -> str:
    """Return the resource with the highest utilisation over time."""
    utilisation = {
        name: Fraction(sum(track.usage_area.get(name, 0) for track in result.share_metrics.queues.values()), area)
        for name, area in sorted(result.share_metrics.capacity_area.items())
        if area and name in series.usage
    }
    return max(utilisation, key=lambda name: utilisation[name], default="cpu")


def _bands(
    series: TimeSeries, result: SimulationResult, resource: str, times: Sequence[int]
) -> tuple[list[str], list[list[float]]]:
    """Return labels and usage in percent at each time of the largest leaf queues and of the others together."""
    tracks = result.share_metrics.queues
    steps = series.usage.get(resource, {})
    leaves = [name for name in steps if result.state.tree().nodes[name].is_leaf]
    ranked = sorted(leaves, key=lambda name: (-tracks[name].usage_area.get(resource, 0), name))
    values = {name: [float(100 * fraction) for fraction in values_at(steps[name], times)] for name in ranked}
    labels = [str(name) for name in ranked[:_MAX_QUEUES]]
    bands = [values[name] for name in ranked[:_MAX_QUEUES]]
    others = [values[name] for name in ranked[_MAX_QUEUES:]]
    if others:
        labels.append(f"{len(others)} others")
        bands.append([sum(column) for column in zip(*others, strict=True)])
    return labels, bands


def _waiting(series: TimeSeries) -> list[tuple[int, Fraction]]:
    return [(time, Fraction(count)) for time, count in series.waiting]


def _times(end: int) -> list[int]:
    """Return equidistant times up to *end*."""
    return sorted({end * index // _POINTS for index in range(_POINTS + 1)})


def _unit(end: int) -> tuple[int, str]:
    return next(((unit, name) for unit, name in _UNITS if end >= _MIN_UNITS * unit), _UNITS[-1])
