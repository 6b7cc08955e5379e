"""Who asked the API server to write what, and what it answered: its own audit log.

A server that is killed may have carried out a write that its log does not
tell; the store's history has it all the same.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

CONTROLLER = {"volcano-global-controller", "volcano-global-hyperjobs"}


@dataclass(frozen=True, slots=True)
class Request:
    """One write that was asked for."""

    at: datetime
    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    status: int
    revision: int
    """The resourceVersion of the answer; 0 where it has none."""
    body: Any

    @property
    def target(self) -> tuple[str, str, str, str]:
        """Return what it is about; a patch that tests a uid is about that very object."""
        tests = self.body if isinstance(self.body, list) else []
        uid = next((str(test.get("value")) for test in tests if test.get("path") == "/metadata/uid"), "")
        return self.resource, self.namespace, self.name, uid

    @property
    def done(self) -> bool:
        """Say whether it was carried out."""
        return self.status < 300


def read(log: Path, *, since: int = 0) -> Iterator[Request]:
    """Yield what the log tells after so many bytes; the last line may be half there."""
    if not log.exists():
        return
    with log.open("rb") as lines:
        lines.seek(since)
        for line in lines:
            if line.endswith(b"\n"):
                yield _request(json.loads(line))


def size(log: Path) -> int:
    """Return how many bytes there are."""
    return log.stat().st_size if log.exists() else 0


def by_controller(log: Path, *, since: int = 0) -> list[Request]:
    """Return the controller's writes; its lease and what it tells tenants are no part of the world that it changes."""
    aside = {"leases", "events"}
    return [item for item in read(log, since=since) if item.user in CONTROLLER and item.resource not in aside]


def _request(event: dict[str, Any]) -> Request:
    target = event.get("objectRef", {})
    answer = event.get("responseObject") or {}
    meta = answer.get("metadata") or {} if isinstance(answer, dict) else {}
    return Request(
        at=datetime.fromisoformat(event["requestReceivedTimestamp"]),
        user=event["user"].get("username", ""),
        verb=event["verb"],
        resource=target.get("resource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        status=(event.get("responseStatus") or {}).get("code", 0),
        revision=int(meta.get("resourceVersion") or 0),
        body=event.get("requestObject"),
    )
