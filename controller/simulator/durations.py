"""Spans of virtual time as annotations and options write them, in whole milliseconds."""

import re

_PART = re.compile(r"([0-9]{1,12})(ms|s|m|h)")
_FORM = re.compile(r"(?:[0-9]{1,12}(?:ms|s|m|h))+")
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_SECOND = 1000


class DurationError(ValueError):
    """A text that is no span of time; the message says how to write one."""


def parse_duration(text: str) -> int:
    """Return the milliseconds that *text* says: ``90s``, ``1h30m``, ``200ms``."""
    if not _FORM.fullmatch(text):
        raise DurationError(
            f"{text!r} is no span of time; write whole numbers with h, m, s or ms, such as 90s or 1h30m"
        )
    return sum(int(count) * _MILLISECONDS[unit] for count, unit in _PART.findall(text))


def format_duration(span: int) -> str:
    """Return *span* as ``parse_span`` reads it."""
    return f"{span}ms" if span % _SECOND else f"{span // _SECOND}s"


def seconds(span: int) -> int | float:
    """Return *span* in seconds, for reports: a whole number where it is one."""
    return span / _SECOND if span % _SECOND else span // _SECOND
