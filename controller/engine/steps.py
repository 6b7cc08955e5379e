"""Work that is done in parts, so that its caller may do other things in between.

Steps are counted and not timed: where work is interrupted changes nothing in its result.
"""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[int, None, T]
"""Yields after each part how many steps it took, and returns the result at the end."""


def finish(work: Steps[T]) -> T:
    """Do all of *work* at once and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            result: T = ended.value
            return result


def advance(work: Steps[T], steps: int) -> tuple[T] | None:
    """Continue *work* for about *steps* steps; return its result in a tuple, ``None`` while there is more to do."""
    while steps > 0:
        try:
            steps -= next(work)
        except StopIteration as ended:
            return (ended.value,)
    return None
