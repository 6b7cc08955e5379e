"""Amounts of resources, and arithmetic on them.

An amount is an integer in base units: milli-CPU for ``cpu``, bytes for
``memory``, thousandths of everything else (D1). A vector of amounts is a
mapping that is never modified after its creation; a missing name means zero.
"""

from collections.abc import Iterable, Iterator, Mapping

Resources = Mapping[str, int]

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"

#: How many base units one unit has, except of bytes, which are base units themselves.
MILLI = 1000


class _Empty(Mapping[str, int]):
    """An empty vector; hashable, as a dataclass requires of a field's default."""

    __slots__ = ()

    def __getitem__(self, name: str) -> int:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and not other

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"


EMPTY: Resources = _Empty()


def base_units(resource: str) -> int:
    """Return how many base units one unit of *resource* has."""
    return 1 if resource == MEMORY else MILLI


def add(left: Resources, right: Resources) -> Resources:
    """Return the sum, name by name."""
    if not left:
        return right
    total = dict(left)
    for name, amount in right.items():
        total[name] = total.get(name, 0) + amount
    return total


def add_to(sums: dict[str, int], amounts: Resources) -> None:
    """Add *amounts* to *sums* in place."""
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0) + amount


def subtract(left: Resources, right: Resources) -> Resources:
    """Return the difference, name by name; it may be negative."""
    rest = dict(left)
    for name, amount in right.items():
        rest[name] = rest.get(name, 0) - amount
    return rest


def total(parts: Iterable[Resources]) -> Resources:
    """Return the sum of all *parts*, empty for none."""
    sums: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def scale(amounts: Resources, times: int) -> Resources:
    """Return *amounts* taken *times* times."""
    return {name: amount * times for name, amount in amounts.items()}


def elementwise_max(left: Resources, right: Resources) -> Resources:
    """Return the larger amount of each name."""
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def elementwise_min(left: Resources, right: Resources) -> Resources:
    """Return the smaller amount of each name."""
    return {name: min(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def remaining(due: Resources, covered: Resources) -> Resources:
    """Return what *covered* leaves of *due*, at least zero; other names of *covered* do not count."""
    return {name: max(amount - covered.get(name, 0), 0) for name, amount in due.items()}


def clamp_non_negative(amounts: Resources) -> Resources:
    """Return *amounts* with negative ones replaced by zero."""
    return {name: max(amount, 0) for name, amount in amounts.items()}


def positive(amounts: Resources) -> Resources:
    """Return the amounts above zero, in name order."""
    return {name: amounts[name] for name in sorted(amounts) if amounts[name] > 0}


def nonzero(amounts: Resources) -> Resources:
    """Return *amounts* without the names whose amount is zero."""
    return {name: amount for name, amount in amounts.items() if amount}


def first_insufficient(request: Resources, available: Resources) -> str | None:
    """Return the first name, in name order, of which *request* exceeds *available*."""
    short = [name for name, amount in request.items() if amount > 0 and amount > available.get(name, 0)]
    return min(short) if short else None


def fits(request: Resources, available: Resources) -> bool:
    """Return whether *available* suffices for every name in *request*."""
    for name, amount in request.items():  # noqa: SIM110 - a generator is slower, and this is called most often
        if amount > 0 and amount > available.get(name, 0):
            return False
    return True
