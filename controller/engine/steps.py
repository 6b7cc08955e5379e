"""Runs long computations in parts, so that the caller can do other work in between.

Steps are counted, not timed: interruptions do not change the result.
"""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[int, None, T]
"""Yields the number of steps after each part, and returns the result at the end."""


def finish(work: Steps[T]) -> T:
    """Run *work* to its end and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            result: T = ended.value
            return result


def advance(work: Steps[T], steps: int) -> tuple[T] | None:
    """Continue *work* for about *steps* steps; return its result in a tuple, ``None`` while it is incomplete."""
    while steps > 0:
        try:
            steps -= next(work)
        except StopIteration as ended:
            return (ended.value,)
    return None
