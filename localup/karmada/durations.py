"""Parses durations of annotations and options: `500ms`, `90s`, `10m`, `1h30m`."""

import re
from typing import Final

_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def seconds_in(text: str) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: The text is not a duration.
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write it like 500ms, 90s or 1h30m")
    return sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(text))
