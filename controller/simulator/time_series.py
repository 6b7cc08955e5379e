"""Records usage and pending jobs over virtual time for a plot."""

from collections.abc import Sequence
from fractions import Fraction

from controller.engine.state.hierarchy import QueueName
from controller.engine.state.resources import Resources

Steps = list[tuple[int, Fraction]]
"""Pairs of a time and the value from that time on."""


class TimeSeries:
    """Usage of each queue as a fraction of the total capacity, and the number of pending jobs."""

    def __init__(self) -> None:
        self.usage: dict[str, dict[QueueName, Steps]] = {}
        """Usage by resource and queue."""
        self.waiting: list[tuple[int, int]] = []

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
