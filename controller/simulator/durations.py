"""Parses and formats durations of annotations and options, in milliseconds."""

import re

_PART = re.compile(r"([0-9]{1,12})(ms|s|m|h)")
_FORM = re.compile(r"(?:[0-9]{1,12}(?:ms|s|m|h))+")
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_SECOND = 1000


class DurationError(ValueError):
    """A text that is not a duration; the message gives the format."""


def parse_duration(text: str) -> int:
    """Parse a duration such as ``90s``, ``1h30m`` or ``200ms`` into milliseconds."""
    if not _FORM.fullmatch(text):
        raise DurationError(f"{text!r} is not a duration; write whole numbers with h, m, s or ms, such as 90s or 1h30m")
    return sum(int(count) * _MILLISECONDS[unit] for count, unit in _PART.findall(text))


def format_duration(duration: int) -> str:
    """Format milliseconds so that `parse_duration` parses them."""
    return f"{duration}ms" if duration % _SECOND else f"{duration // _SECOND}s"


def seconds(duration: int) -> int | float:
    """Convert milliseconds to seconds, as an integer if possible."""
    return duration / _SECOND if duration % _SECOND else duration // _SECOND
