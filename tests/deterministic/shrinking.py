"""Finds a small part of a failing script that still fails in the same way."""

from collections.abc import Sequence
from dataclasses import replace

from tests.deterministic.operations import Operation
from tests.deterministic.simulation import HOUR, Result, is_calm, run


def kinds_of(violations: Sequence[str]) -> set[str]:
    """Return which invariants are violated, by number."""
    return {violation.partition(": ")[2][:2] for violation in violations}


class Shrinker:
    """Repeats the run of *result* with fewer operations, at most *attempts* times."""

    def __init__(self, result: Result, *, attempts: int) -> None:
        self.seed = result.seed
        self.hours = result.hours
        self.calm: bool | None = None
        self.operations = list(result.operations)
        self.violations = list(result.violations)
        self._kinds = kinds_of(result.violations)
        self._attempts = attempts

    def shrink(self) -> None:
        """Drop everything before the last hour, then as many other operations as possible."""
        last = self.hours - 1
        moved = [replace(item, at=item.at - last * HOUR) for item in self.operations if item.at >= last * HOUR]
        if last and self._fails(moved, hours=1, calm=is_calm(self.seed, last)):
            self.hours, self.calm = 1, is_calm(self.seed, last)
        size = max(1, len(self.operations) // 2)
        while size:
            begin = 0
            while begin < len(self.operations) and self._attempts > 0:
                rest = [*self.operations[:begin], *self.operations[begin + size :]]
                if not self._fails(rest, hours=self.hours, calm=self.calm):
                    begin += size
            size //= 2

    def _fails(self, operations: Sequence[Operation], *, hours: int, calm: bool | None) -> bool:
        """Return whether *operations* still cause a violation of the same kind, and adopt them if they do."""
        self._attempts -= 1
        active = max((item.at % HOUR for item in operations), default=0)
        result = run(self.seed, hours, chosen=operations, calm=calm, active=active)
        if not kinds_of(result.violations) & self._kinds:
            return False
        self.operations, self.violations = list(result.operations), list(result.violations)
        return True
