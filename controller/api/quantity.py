"""Parses Kubernetes quantities into exact integers in base units, and formats them.

A base unit is a byte of ``memory`` and a thousandth of everything else. Fractions of a base unit are rounded up, away
from zero, as Kubernetes does. There are no floats, and the work is bounded for any text.
"""

import re
from fractions import Fraction
from functools import lru_cache
from math import floor

_FORM = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(|[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)")
_MAX_LENGTH = 128
#: Maximum length of a resource name in Kubernetes: a domain, a slash and a label.
_MAX_RESOURCE_LENGTH = 253 + 1 + 63
_MAX_EXPONENT = 100
#: Below this any mantissa within the length limit rounds up to one base unit.
_MIN_EXPONENT = -300

_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SUFFIX_BY_TENS = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_SUFFIX_BY_TWOS = {exponent: suffix for suffix, exponent in _BINARY_SUFFIXES.items()}

#: Kubernetes caps only quantities with a binary suffix.
_BINARY_CAP = 2**63 - 1

_MEMORY = "memory"
_MILLI = 1000
_KIBI = 1024


class QuantityError(ValueError):
    """An invalid Kubernetes quantity, one that is too large, or one of a resource with an overlong name."""


def parse_quantity(resource: str, value: str | float) -> int:
    """Return *value* in base units of *resource*.

    Integers and floats are read as their JSON text.
    """
    if len(resource) > _MAX_RESOURCE_LENGTH:
        raise QuantityError(
            f"the resource name '{resource[:16]}…' has {len(resource)} characters; use at most {_MAX_RESOURCE_LENGTH}"
        )
    text = value if isinstance(value, str) else _number_text(resource, value)
    if len(text) > _MAX_LENGTH:
        raise QuantityError(
            f"{resource}: '{text[:16]}…' has {len(text)} characters; write it with at most {_MAX_LENGTH}"
        )
    return _amount(resource, text)


def format_quantity(resource: str, amount: int | Fraction) -> str:
    """Return the canonical text of *amount* base units, rounded down to a whole base unit."""
    # Long names are not cached: thousands of names as long as an object would exhaust the memory.
    return (_text if len(resource) <= _MAX_RESOURCE_LENGTH else _text.__wrapped__)(resource, floor(amount))


@lru_cache(maxsize=4096)
def _text(resource: str, whole: int) -> str:
    units = _units(resource)
    if is_bytes(resource) and whole % units == 0:
        return _binary(whole // units)
    return _decimal(whole, 0 if units == 1 else -3)


def _units(resource: str) -> int:
    return 1 if resource == _MEMORY else _MILLI


def is_bytes(resource: str) -> bool:
    """Return whether *resource* is measured in bytes."""
    return resource in {_MEMORY, "storage", "ephemeral-storage"} or resource.startswith("hugepages-")


def _number_text(resource: str, number: float) -> str:
    if isinstance(number, int) and number.bit_length() > 3 * _MAX_LENGTH:
        raise QuantityError(f"{resource}: an integer of {number.bit_length()} bits is larger than any cluster")
    return repr(number)


@lru_cache(maxsize=4096)
def _amount(resource: str, text: str) -> int:
    match = _FORM.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise QuantityError(f"{resource}: {text!r} is not a quantity; write it like 500m, 2 or 64Gi")
    sign, whole, fraction, suffix = match[1], match[2], match[3] or "", match[4]
    mantissa = int(whole + fraction)
    if suffix in _BINARY_SUFFIXES:
        cap: int = _BINARY_CAP * 10 ** len(fraction)
        magnitude = _in_base_units(resource, min(mantissa << _BINARY_SUFFIXES[suffix], cap), -len(fraction))
    else:
        magnitude = _in_base_units(resource, mantissa, _exponent(resource, text, suffix) - len(fraction))
    return -magnitude if sign == "-" else magnitude


def _exponent(resource: str, text: str, suffix: str) -> int:
    exponent = _DECIMAL_SUFFIXES[suffix] if suffix in _DECIMAL_SUFFIXES else int(suffix[1:])
    if exponent > _MAX_EXPONENT:
        raise QuantityError(f"{resource}: {text!r} is larger than any cluster")
    return max(exponent, _MIN_EXPONENT)


def _in_base_units(resource: str, mantissa: int, scale: int) -> int:
    """Return mantissa * 10^scale units in base units, rounded up."""
    amount = mantissa * _units(resource)
    factor: int = 10 ** abs(scale)
    return amount * factor if scale >= 0 else -(-amount // factor)


def _decimal(value: int, exponent: int) -> str:
    """Return value * 10^exponent with the largest suffix that gives an integer."""
    if value == 0:
        return "0"
    while value % _MILLI == 0 and exponent < _DECIMAL_SUFFIXES["E"]:
        value //= _MILLI
        exponent += 3
    return f"{value}{_SUFFIX_BY_TENS[exponent]}"


def _binary(count: int) -> str:
    """Return *count* bytes with the largest binary suffix that gives an integer, else as a decimal."""
    if count == 0 or count % _KIBI or abs(count) > _BINARY_CAP:
        return _decimal(count, 0)
    exponent = 0
    while count % _KIBI == 0 and exponent < _BINARY_SUFFIXES["Ei"]:
        count //= _KIBI
        exponent += 10
    return f"{count}{_SUFFIX_BY_TWOS[exponent]}"
