"""How a simulation went over time, as steps for a drawing: kept only when somebody wants to draw."""

from collections.abc import Sequence
from fractions import Fraction

from controller.engine.queues import QueueName
from controller.engine.resources import Resources

Steps = list[tuple[int, Fraction]]
"""From each of these times on, this value."""


class TimeSeries:
    """What each queue held, as a part of all there was, and how many waited."""

    def __init__(self) -> None:
        self.held: dict[str, dict[QueueName, Steps]] = {}
        """By resource and queue."""
        self.waiting: list[tuple[int, int]] = []

    def record_usage(self, queue: QueueName, now: int, *, held: Resources, pool: Resources) -> None:
        """Note what *queue* holds from *now* on, out of *pool*."""
        for name, amount in pool.items():
            part = Fraction(held.get(name, 0), amount) if amount else Fraction(0)
            _note(self.held.setdefault(name, {}).setdefault(queue, []), now, part)

    def record_pending(self, count: int, now: int) -> None:
        """Note how many wait from *now* on."""
        if not self.waiting or self.waiting[-1][1] != count:
            self.waiting.append((now, count))


def _note(steps: Steps, now: int, value: Fraction) -> None:
    if steps and steps[-1][0] == now:
        steps.pop()
    if not steps or steps[-1][1] != value:
        steps.append((now, value))


def values_at(steps: Sequence[tuple[int, Fraction]], times: Sequence[int]) -> list[Fraction]:
    """Return the value at each of *times*, which ascend; 0 before the first step."""
    values, place = [], 0
    for time in times:
        while place < len(steps) and steps[place][0] <= time:
            place += 1
        values.append(steps[place - 1][1] if place else Fraction(0))
    return values
