"""Kubernetes quantities as exact integers in base units, and back to text.

A base unit is a byte of ``memory`` and a thousandth of everything else; what
lies between two base units is rounded up, away from zero, as Kubernetes does.
No floats, and bounded work whatever the text.
"""

import re
from fractions import Fraction
from functools import lru_cache
from math import floor

_FORM = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(|[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)")
_LONGEST = 128
#: A resource's name in Kubernetes: a domain, a slash and a label.
_LONGEST_RESOURCE = 253 + 1 + 63
_GREATEST_EXPONENT = 100
#: Below this any mantissa that is short enough to be read rounds up to one base unit.
_LEAST_EXPONENT = -300

_TENS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_TWOS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_TEN_SUFFIXES = {exponent: suffix for suffix, exponent in _TENS.items()}
_TWO_SUFFIXES = {exponent: suffix for suffix, exponent in _TWOS.items()}

#: Kubernetes caps what is written with a binary suffix here, and nothing else.
_BINARY_CAP = 2**63 - 1

_MEMORY = "memory"
_MILLI = 1000
_KIBI = 1024


class QuantityError(ValueError):
    """A text or number that is no Kubernetes quantity, or one beyond all bounds."""


def parse_quantity(resource: str, value: str | float) -> int:
    """Return *value* in base units of *resource*.

    Integers and floats are taken as their JSON text.
    """
    text = value if isinstance(value, str) else _written(resource, value)
    if len(text) > _LONGEST:
        raise QuantityError(f"{resource}: '{text[:16]}…' has {len(text)} characters; write it with at most {_LONGEST}")
    # A cached name is kept: of thousands that are as long as an object can be, the process would run out of memory.
    return _amount(resource, text) if len(resource) <= _LONGEST_RESOURCE else _amount.__wrapped__(resource, text)


def format_quantity(resource: str, amount: int | Fraction) -> str:
    """Return the canonical text of *amount* base units, rounded down to a whole base unit."""
    whole = floor(amount)
    units = _units(resource)
    if _counts_bytes(resource) and whole % units == 0:
        return _binary(whole // units)
    return _decimal(whole, 0 if units == 1 else -3)


def _units(resource: str) -> int:
    return 1 if resource == _MEMORY else _MILLI


def _counts_bytes(resource: str) -> bool:
    return resource in {_MEMORY, "storage", "ephemeral-storage"} or resource.startswith("hugepages-")


def _written(resource: str, number: float) -> str:
    if isinstance(number, int) and number.bit_length() > 3 * _LONGEST:
        raise QuantityError(f"{resource}: an integer of {number.bit_length()} bits is more than any cluster has")
    return repr(number)


@lru_cache(maxsize=4096)
def _amount(resource: str, text: str) -> int:
    match = _FORM.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise QuantityError(f"{resource}: {text!r} is no quantity; write it like 500m, 2 or 64Gi")
    sign, whole, fraction, suffix = match[1], match[2], match[3] or "", match[4]
    mantissa = int(whole + fraction)
    if suffix in _TWOS:
        cap: int = _BINARY_CAP * 10 ** len(fraction)
        magnitude = _in_base_units(resource, min(mantissa << _TWOS[suffix], cap), -len(fraction))
    else:
        magnitude = _in_base_units(resource, mantissa, _exponent(resource, text, suffix) - len(fraction))
    return -magnitude if sign == "-" else magnitude


def _exponent(resource: str, text: str, suffix: str) -> int:
    exponent = _TENS[suffix] if suffix in _TENS else int(suffix[1:])
    if exponent > _GREATEST_EXPONENT:
        raise QuantityError(f"{resource}: {text!r} is more than any cluster has")
    return max(exponent, _LEAST_EXPONENT)


def _in_base_units(resource: str, mantissa: int, scale: int) -> int:
    """Return mantissa * 10^scale units in base units, rounded up."""
    amount = mantissa * _units(resource)
    factor: int = 10 ** abs(scale)
    return amount * factor if scale >= 0 else -(-amount // factor)


def _decimal(value: int, exponent: int) -> str:
    """Return value * 10^exponent with the largest suffix that keeps it whole."""
    if value == 0:
        return "0"
    while value % _MILLI == 0 and exponent < _TENS["E"]:
        value //= _MILLI
        exponent += 3
    return f"{value}{_TEN_SUFFIXES[exponent]}"


def _binary(count: int) -> str:
    """Return *count* bytes with the largest binary suffix, or as a decimal where none keeps it whole."""
    if count == 0 or count % _KIBI or abs(count) > _BINARY_CAP:
        return _decimal(count, 0)
    exponent = 0
    while count % _KIBI == 0 and exponent < _TWOS["Ei"]:
        count //= _KIBI
        exponent += 10
    return f"{count}{_TWO_SUFFIXES[exponent]}"
