"""Reads pending reasons from the controller's log."""

import json
from collections.abc import Iterator
from pathlib import Path

from localup.demo.timeline import PendingReason

_EVENT = "workload pending"


class PendingReasonReader:
    """Reads the log from the position where the last read ended."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0

    def read_new(self) -> Iterator[PendingReason]:
        """Yield pending reasons of the complete lines written since the last call."""
        if not self._log.exists():
            return
        with self._log.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                pending_reason = parse_pending_reason(line)
                if pending_reason is not None:
                    yield pending_reason


def parse_pending_reason(line: bytes) -> PendingReason | None:
    """Return the pending reason that *line* reports, or ``None`` for other lines."""
    try:
        entry = json.loads(line)
    except ValueError:  # output of a crashing program is not JSON
        return None
    if not isinstance(entry, dict) or entry.get("event") != _EVENT:
        return None
    job = str(entry["workload"]).rpartition(" ")[2]
    return PendingReason(job, entry["reason"], entry["message"])
