"""Durations in the configuration: ``0s``, ``90s``, ``10m``, ``2h``."""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator

_FORM = re.compile(r"([0-9]{1,9})([smh])")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def parse_duration(value: object) -> timedelta:
    """Return the duration *value*; raise `ValueError` with the expected format if it is invalid."""
    match = _FORM.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a duration; write a whole number and s, m or h, such as 90s, 10m or 2h")
    return timedelta(seconds=int(match[1]) * _SECONDS[match[2]])


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
