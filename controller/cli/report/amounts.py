"""Amounts and times as reports write them: exact for programs, short for people."""

from collections.abc import Iterable, Mapping
from fractions import Fraction

from controller.api.quantity import format_quantity
from controller.cache.translate.units import to_datetime
from controller.engine.resources import MILLI, PODS, Resources, base_units

Amounts = dict[str, str]

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_BYTES = ("memory", "storage", "ephemeral-storage", "hugepages-")
_KIBI = 1024
_HUNDREDTHS = 100


def quantities(amounts: Mapping[str, int | Fraction], resources: Iterable[str]) -> Amounts:
    """Return the amounts of *resources* as quantities, rounded down; what is missing is zero."""
    return {name: format_quantity(name, amounts.get(name, 0)) for name in resources}


def positive_quantities(amounts: Resources) -> Amounts:
    """Return what is really asked for, by name."""
    return quantities(amounts, sorted(name for name, amount in amounts.items() if amount > 0))


def format_short(resource: str, amount: int | Fraction) -> str:
    """Return an amount for people: at most two decimals, rounded towards zero."""
    if amount < 0:
        return f"-{format_short(resource, -amount)}"
    rest, place = Fraction(amount) / base_units(resource), 0
    if not resource.startswith(_BYTES):
        return _format_decimal(rest)
    while rest >= _KIBI and place < len(_BINARY) - 1:
        rest /= _KIBI
        place += 1
    return f"{_format_decimal(rest)}{_BINARY[place]}"


def describe_requests(amounts: Resources) -> str:
    """Return what is asked for in words: ``2 cpu, 4Gi memory in 2 pods``."""
    parts = [
        f"{format_short(name, amounts[name])} {name}" for name in sorted(amounts) if name != PODS and amounts[name] > 0
    ]
    pods = amounts.get(PODS, 0)
    inside = f" in {format_short(PODS, pods)} pod{'' if pods == MILLI else 's'}" if pods > 0 else ""
    return (", ".join(parts) or "nothing") + inside


def format_time(at: int | None) -> str | None:
    """Return a time as Kubernetes writes it; ``None`` where none is known."""
    written = to_datetime(at or None)
    return written.strftime("%Y-%m-%dT%H:%M:%SZ") if written else None


def format_minute(at: str | None) -> str:
    """Return a written time for people, in UTC."""
    return at[:16].replace("T", " ") if at else "-"


def _format_decimal(amount: Fraction) -> str:
    whole, hundredths = divmod(int(amount * _HUNDREDTHS), _HUNDREDTHS)
    return f"{whole}.{hundredths:02}".rstrip("0").rstrip(".")
