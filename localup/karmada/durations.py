"""Durations as they are written in annotations and options: `500ms`, `90s`, `10m`, `1h30m`."""

import re
from typing import Final

_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def seconds_in(text: str) -> float:
    """Return how many seconds a duration lasts.

    Raises:
        ValueError: The text is no duration.
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is no duration; write it like 500ms, 90s or 1h30m")
    return sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(text))
