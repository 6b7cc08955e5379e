"""What the pages share: the snapshot, the rows of a list that are filtered, sorted and paged, and amounts as text."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

import msgspec

from console.model import Model
from controller.api.quantity import QuantityError, format_quantity, parse_quantity
from controller.cli.input.snapshot import Snapshot
from controller.cli.render.amounts import format_short
from controller.engine.state.resources import PODS

T = TypeVar("T")

PAGE_SIZE = 50
#: Maximum number of pages; rows beyond them are found with a filter.
MAX_PAGES = 400
_MAX_CHARACTERS = 253
#: Resources that a row shows.
MAX_BARS = 3


class BadQueryError(ValueError):
    """A parameter of a request is invalid; the message names it."""


class NotVisibleError(LookupError):
    """An object that does not exist, or that the reader may not see; the message does not say which."""


class ForbiddenError(PermissionError):
    """A page that the reader may not see; the message says which permission it needs."""


def shown_snapshot(model: Model) -> Snapshot:
    """Return the newest snapshot; raise `NotVisibleError` before the first one."""
    if model.snapshot is None:
        raise NotVisibleError("the console has not read the control plane yet; reload in some seconds")
    return model.snapshot


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of a request: those of the path, and those after the question mark."""

    path: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """Return a parameter, empty without one; raise `BadQueryError` if it is too long."""
        value = self.values.get(name, "").strip()
        if len(value) > _MAX_CHARACTERS:
            raise BadQueryError(f"{name} is longer than {_MAX_CHARACTERS} characters")
        return value

    def choice(self, name: str, choices: Iterable[str]) -> str:
        """Return a parameter that is one of *choices*, the first one without it; raise `BadQueryError`."""
        known = tuple(choices)
        value = self.values.get(name) or known[0]
        if value not in known:
            raise BadQueryError(f"{name} must be one of {', '.join(known)}")
        return value

    @property
    def page(self) -> int:
        """Return the number of the page, from 1; raise `BadQueryError`."""
        value = self.values.get("page", "1")
        if not (value.isascii() and value.isdecimal() and len(value) < 6 and 1 <= int(value) <= MAX_PAGES):  # noqa: PLR2004 -- digits
            raise BadQueryError(f"page must be a number from 1 to {MAX_PAGES}")
        return int(value)


class Paging(msgspec.Struct, rename="camel", frozen=True):
    """Which part of a list is shown, and how it is sorted and filtered."""

    page: int
    pages: int
    total: int
    sort: str
    sorts: tuple[str, ...]
    filter: str = ""


def page_of(rows: list[T], query: Query, key: Callable[[T], object]) -> list[T]:
    """Return the rows of the requested page in the order of *key*."""
    end = query.page * PAGE_SIZE
    # nsmallest compares keys that end in the name, so the order is the same for each page.
    return heapq.nsmallest(end, rows, key=key)[end - PAGE_SIZE :]  # type: ignore[arg-type] # keys are tuples


def paging(total: int, query: Query, sorts: tuple[str, ...]) -> Paging:
    """Return the description of the requested page of *total* rows."""
    pages = min(max(-(-total // PAGE_SIZE), 1), MAX_PAGES)
    return Paging(query.page, pages, total, query.choice("sort", sorts), sorts, query.text("q"))


def merge_consecutive(rows: Iterable[T], are_alike: Callable[[T, T], bool], merge: Callable[[T], T]) -> Iterator[T]:
    """Yield *rows*; each one that is alike the row before it is merged into that."""
    last: T | None = None
    for row in rows:
        if last is not None and are_alike(last, row):
            last = merge(last)
            continue
        if last is not None:
            yield last
        last = row
    if last is not None:
        yield last


class Bar(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One resource of a queue or cluster: amounts as quantities, and as parts of the length of a bar, 0 to 1."""

    resource: str
    used: str
    limit: str
    fair_share: str = ""
    external: str = ""
    free: str = ""
    used_part: float = 0.0
    borrowed_part: float = 0.0
    """The part of the usage above the fair share."""
    fair_part: float = 0.0
    external_part: float = 0.0
    reserved_part: float = 0.0
    """Nominated or reserved, and not used yet."""


Amounts = Mapping[str, int | Fraction]


def queue_bar(resource: str, used: Amounts, fair: Amounts, limit: Amounts) -> Bar:
    """Return the bar of a queue: its length is the limit, or the usage where that is more."""
    amounts = [max(Fraction(by_resource.get(resource, 0)), Fraction(0)) for by_resource in (used, fair, limit)]
    length = max(amounts) or Fraction(1)
    own = min(amounts[0], amounts[1])
    return Bar(
        resource,
        format_quantity(resource, amounts[0]),
        format_quantity(resource, amounts[2]),
        format_quantity(resource, amounts[1]),
        used_part=_part(own, length),
        borrowed_part=_part(amounts[0] - own, length),
        fair_part=_part(amounts[1], length),
    )


def cluster_bar(resource: str, used: Amounts, external: Amounts, allocatable: Amounts, reserved: Amounts) -> Bar:
    """Return the bar of a cluster: its length is the allocatable amount, or the usage where that is more."""
    ours, others, whole, held = (
        max(Fraction(by_resource.get(resource, 0)), Fraction(0))
        for by_resource in (used, external, allocatable, reserved)
    )
    length = max(whole, ours + others) or Fraction(1)
    held = min(held, max(length - ours - others, Fraction(0)))
    return Bar(
        resource,
        format_quantity(resource, ours),
        format_quantity(resource, whole),
        external=format_quantity(resource, others),
        free=format_quantity(resource, max(whole - ours - others, Fraction(0))),
        used_part=_part(ours, length),
        external_part=_part(others, length),
        reserved_part=_part(held, length),
    )


def _part(amount: Fraction, of: Fraction) -> float:
    return round(float(amount / of), 3)


def shown_resources(resources: Iterable[str]) -> list[str]:
    """Return the resources of a row: devices first, then cpu and memory."""
    order = {"cpu": 1, "memory": 2}
    names = [name for name in resources if name != PODS]
    return sorted(names, key=lambda name: (0 if "/" in name else order.get(name, 3), name))[:MAX_BARS]


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Return positive amounts as text: ``2 cpu, 4Gi memory``; devices first."""
    names = shown_resources(name for name, amount in amounts.items() if amount > 0)
    return ", ".join(f"{format_short(name, amounts[name])} {name.rpartition('/')[2]}" for name in names)


def quantities_text(amounts: Mapping[str, str]) -> str:
    """Return quantities as text, as `amounts_text` does."""
    parsed: dict[str, int] = {}
    for name, amount in amounts.items():
        try:
            parsed[name] = parse_quantity(name, amount)
        except QuantityError:
            continue
    return amounts_text(parsed)
