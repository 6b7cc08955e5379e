"""Formats amounts and times: exact quantities for JSON and YAML, short ones for tables."""

from collections.abc import Iterable, Mapping
from fractions import Fraction

from controller.api.quantity import format_quantity
from controller.cache.translate.units import to_datetime
from controller.engine.state.resources import MILLI, PODS, Resources, base_units

Amounts = dict[str, str]

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_BYTES = ("memory", "storage", "ephemeral-storage", "hugepages-")
_KIBI = 1024
_HUNDREDTHS = 100


def quantities(amounts: Mapping[str, int | Fraction], resources: Iterable[str]) -> Amounts:
    """Return the amounts of *resources* as quantities, rounded down; a missing amount is zero."""
    return {name: format_quantity(name, amounts.get(name, 0)) for name in resources}


def positive_quantities(amounts: Resources) -> Amounts:
    """Return the positive amounts as quantities, sorted by resource name."""
    return quantities(amounts, sorted(name for name, amount in amounts.items() if amount > 0))


def format_short(resource: str, amount: int | Fraction) -> str:
    """Format an amount with at most two decimals, rounded towards zero."""
    if amount < 0:
        return f"-{format_short(resource, -amount)}"
    value, prefix = Fraction(amount) / base_units(resource), 0
    if not resource.startswith(_BYTES):
        return _format_decimal(value)
    while value >= _KIBI and prefix < len(_BINARY) - 1:
        value /= _KIBI
        prefix += 1
    return f"{_format_decimal(value)}{_BINARY[prefix]}"


def describe_requests(amounts: Resources) -> str:
    """Format requests as text: ``2 cpu, 4Gi memory in 2 pods``."""
    parts = [
        f"{format_short(name, amounts[name])} {name}" for name in sorted(amounts) if name != PODS and amounts[name] > 0
    ]
    pods = amounts.get(PODS, 0)
    inside = f" in {format_short(PODS, pods)} pod{'' if pods == MILLI else 's'}" if pods > 0 else ""
    return (", ".join(parts) or "nothing") + inside


def format_time(at: int | None) -> str | None:
    """Format a time as Kubernetes does; return ``None`` for an unknown time."""
    written = to_datetime(at or None)
    return written.strftime("%Y-%m-%dT%H:%M:%SZ") if written else None


def format_minute(at: str | None) -> str:
    """Format a Kubernetes time in UTC to the minute."""
    return at[:16].replace("T", " ") if at else "-"


def _format_decimal(amount: Fraction) -> str:
    whole, hundredths = divmod(int(amount * _HUNDREDTHS), _HUNDREDTHS)
    return f"{whole}.{hundredths:02}".rstrip("0").rstrip(".")
