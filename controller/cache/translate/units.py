"""Converts quantities and times between the wire format and the engine's integers."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TypeVar

from controller.api.quantity import QuantityError, format_quantity, parse_quantity
from controller.engine.state.resources import Resources

E = TypeVar("E", bound=ValueError)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
#: Maximum number of resources of a workload: each is compared with every cluster and queue that may have it.
MAX_RESOURCES = 100
#: A margin of years, so that sums of times stay within the range of datetime.
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)
_END = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND


class AmountError(ValueError):
    """An invalid or negative quantity; the message names its field."""


def without_frames(error: E) -> E:
    """Return *error* to be stored, without its traceback, of which the frames hold the whole object that was read."""
    return type(error)(str(error))


def parse_resources(quantities: Mapping[str, str | int | float], where: str) -> Resources:
    """Return *quantities* in base units; *where* is their field path in error messages."""
    counted = {}
    for name, quantity in quantities.items():
        try:
            counted[name] = parse_quantity(name, quantity)
        except QuantityError as error:
            raise AmountError(f"{where}: {error}") from error
        if counted[name] < 0:
            raise AmountError(f"{where}: {name} is {quantity}; write zero or more")
    return counted


def require_few_resources(requests: Resources) -> Resources:
    """Return the *requests* of a workload; raise `AmountError` if they are of too many resources."""
    if len(requests) > MAX_RESOURCES:
        raise AmountError(f"its pods request {len(requests)} different resources; use at most {MAX_RESOURCES}")
    return requests


def format_resources(resources: Resources) -> dict[str, str]:
    """Return *resources* as canonical quantities, by name."""
    return {name: format_quantity(name, resources[name]) for name in sorted(resources)}


@lru_cache(maxsize=8192)
def to_milliseconds(time: datetime | None) -> int | None:
    """Return *time* in milliseconds since 1970, limited to the years 1970 to 9000.

    Objects that were created in the same second share the number.
    """
    if time is None:
        return None
    passed = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    return min(max(passed, timedelta(0)), _LATEST - _EPOCH) // _MILLISECOND


def format_time(time: int) -> str:
    """Return the time *time* milliseconds after 1970 as RFC 3339 in seconds, as Kubernetes writes times."""
    return datetime.fromtimestamp(time // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_datetime(time: int | None) -> datetime | None:
    """Return the time *time* milliseconds after 1970, in UTC, limited to the years 1970 to 9999."""
    return None if time is None else _EPOCH + min(max(time, 0), _END) * _MILLISECOND


def parse_resource_version(text: str) -> int:
    """Return a resourceVersion as a number; 0 if it is missing."""
    return int(text) if text.isdecimal() else 0


def join_errors(errors: tuple[str, ...], *more: str) -> str:
    """Return the errors joined into one text, empty if there are none."""
    return "; ".join(error for error in (*errors, *more) if error)
