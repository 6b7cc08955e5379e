"""A picture of a simulation: what the queues held and how many waited, over virtual time.

Needs matplotlib, which is loaded only when something is to be drawn.
"""

from collections.abc import Sequence
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from controller.simulator.simulation import SimulationResult
from controller.simulator.time_series import TimeSeries, values_at

FORMATS = (".png", ".svg")
_MOST_QUEUES = 8
_WIDTH, _HEIGHT, _DOTS = 10, 7, 120
_POINTS = 2000
_UNITS = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "seconds"))
_ENOUGH_UNITS = 3
"""A picture of fewer units than this uses the next smaller one."""


class PlotError(Exception):
    """A picture that cannot be drawn; the message says what to do."""


def check_plot(path: Path) -> None:
    """Raise `DrawingError` where *path* could not be drawn, before a long simulation is in vain."""
    if path.suffix.lower() not in FORMATS:
        raise PlotError(f"{path}: a picture ends in {' or '.join(FORMATS)}")
    if find_spec("matplotlib") is None:
        raise PlotError("a picture needs matplotlib; install it with: pip install 'volcano-global[plot]'")
    if not path.absolute().parent.is_dir():
        raise PlotError(f"{path}: the folder {path.parent} does not exist")


def write_plot(series: TimeSeries, result: SimulationResult, path: Path) -> None:
    """Write a picture of *outcome* to *path*: the shares of the largest queues above, who waits below."""
    resource = _main_resource(series, result)
    times = _times(result.ended_at)
    unit, name = _unit(result.ended_at)
    axis = [time / unit for time in times]
    figure = import_module("matplotlib.figure").Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    labels, bands = _bands(series, result, resource, times)
    upper.stackplot(axis, bands, labels=labels, step="post")
    upper.set(ylabel=f"{resource} held (% of all)", ylim=(0, 100), title="What the queues held")
    upper.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="small", reverse=True)
    lower.step(axis, [int(count) for count in values_at(_waiting(series), times)], where="post")
    lower.set(xlabel=f"virtual time ({name})", ylabel="jobs waiting", xlim=(0, max(axis[-1], 1e-9)))
    lower.set_ylim(bottom=0)
    figure.savefig(path, dpi=_DOTS)


def _main_resource(series: TimeSeries, result: SimulationResult) -> str:
    """Return the resource of which queues held the largest part over time."""
    held = {
        name: Fraction(sum(track.usage_area.get(name, 0) for track in result.share_metrics.queues.values()), area)
        for name, area in sorted(result.share_metrics.capacity_area.items())
        if area and name in series.held
    }
    return max(held, key=lambda name: held[name], default="cpu")


def _bands(
    series: TimeSeries, result: SimulationResult, resource: str, times: Sequence[int]
) -> tuple[list[str], list[list[float]]]:
    """Return what the largest leaf queues held in percent at each time, and all others together."""
    tracks = result.share_metrics.queues
    steps = series.held.get(resource, {})
    leaves = [name for name in steps if result.state.tree().nodes[name].is_leaf]
    ranked = sorted(leaves, key=lambda name: (-tracks[name].usage_area.get(resource, 0), name))
    values = {name: [float(100 * part) for part in values_at(steps[name], times)] for name in ranked}
    labels = [str(name) for name in ranked[:_MOST_QUEUES]]
    bands = [values[name] for name in ranked[:_MOST_QUEUES]]
    others = [values[name] for name in ranked[_MOST_QUEUES:]]
    if others:
        labels.append(f"{len(others)} others")
        bands.append([sum(column) for column in zip(*others, strict=True)])
    return labels, bands


def _waiting(series: TimeSeries) -> list[tuple[int, Fraction]]:
    return [(time, Fraction(count)) for time, count in series.waiting]


def _times(end: int) -> list[int]:
    """Return equally distant times up to *end*."""
    return sorted({end * place // _POINTS for place in range(_POINTS + 1)})


def _unit(end: int) -> tuple[int, str]:
    return next(((unit, name) for unit, name in _UNITS if end >= _ENOUGH_UNITS * unit), _UNITS[-1])
