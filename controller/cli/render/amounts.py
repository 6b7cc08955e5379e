"""Formats amounts of resources and times."""

from collections.abc import Iterable, Mapping
from fractions import Fraction

from controller.api.quantity import format_quantity, is_bytes, parse_quantity
from controller.cache.translate.units import to_datetime
from controller.engine.state.resources import MILLI, PODS, Resources, base_units

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_KIBI = 1024
_GIBI = 1024**3
_HUNDREDTHS = 100
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000

Amounts = dict[str, str]


def quantities(amounts: Mapping[str, int | Fraction], resources: Iterable[str]) -> Amounts:
    """Return the amounts of *resources* as quantities, rounded down; a missing amount is zero."""
    return {name: format_quantity(name, amounts.get(name, 0)) for name in resources}


def positive_quantities(amounts: Resources) -> Amounts:
    """Return the positive amounts as quantities, sorted by resource name."""
    return quantities(amounts, sorted(name for name, amount in amounts.items() if amount > 0))


def format_short(resource: str, amount: int | Fraction) -> str:
    """Format an amount with at most two decimals, rounded towards zero."""
    if amount < 0:
        written = format_short(resource, -amount)
        return written if written == "0" else f"-{written}"
    value, prefix = Fraction(amount) / base_units(resource), 0
    if not is_bytes(resource):
        return _format_decimal(value)
    while value >= _KIBI and prefix < len(_BINARY) - 1:
        value /= _KIBI
        prefix += 1
    return f"{_format_decimal(value)}{_BINARY[prefix]}"


def format_positive(resource: str, amount: int) -> str:
    """Format an amount above zero with at most two decimals, exactly where these would show zero."""
    written = format_short(resource, amount)
    return format_quantity(resource, amount) if written == "0" else written


def format_amount(resource: str, amounts: Amounts) -> str:
    """Format the amount of *resource* with at most two decimals; a missing amount is a dash."""
    return format_short(resource, parse_quantity(resource, amounts[resource])) if resource in amounts else "-"


def resource_title(resource: str) -> str:
    """Return the title of a column of *resource*, with the unit of `in_unit`: ``MEMORY GiB``."""
    name = resource.rpartition("/")[2].upper()
    return f"{name} GiB" if is_bytes(resource) else name


def in_unit(resource: str, amounts: Amounts) -> str:
    """Format the amount of *resource* in the unit of its column; a missing amount is a dash."""
    if resource not in amounts:
        return "-"
    amount = Fraction(parse_quantity(resource, amounts[resource])) / base_units(resource)
    written = _format_decimal(abs(amount) / _GIBI if is_bytes(resource) else abs(amount))
    return f"-{written}" if amount < 0 and written != "0" else written


def describe_requests(amounts: Resources) -> str:
    """Format requests as text: ``2 cpu, 4Gi memory in 2 pods``."""
    parts = [
        f"{format_positive(name, amounts[name])} {name}"
        for name in sorted(amounts)
        if name != PODS and amounts[name] > 0
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


def format_age(since: int | None, now: int) -> str:
    """Format the time since *since* as kubectl does: ``45s``, ``3m20s``, ``5h``, ``12d``; empty if unknown."""
    if not since:
        return ""
    age = max(now - since, 0)
    for unit, part, names, most in ((_DAY, _HOUR, "dh", 8), (_HOUR, _MINUTE, "hm", 8), (_MINUTE, _SECOND, "ms", 10)):
        if age >= (2 * unit if unit is not _HOUR else 3 * unit):
            rest = age % unit // part
            return f"{age // unit}{names[0]}" + (f"{rest}{names[1]}" if rest and age < most * unit else "")
    return f"{age // _SECOND}s"


def _format_decimal(amount: Fraction) -> str:
    whole, hundredths = divmod(int(amount * _HUNDREDTHS), _HUNDREDTHS)
    return f"{whole}.{hundredths:02}".rstrip("0").rstrip(".")
