"""Reads the API server's audit log: writes with their users and results.

A killed server may have executed a write that is missing in its log; the store's history has it.
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
    """Logged write request."""

    at: datetime
    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    status: int
    revision: int
    """resourceVersion of the response; 0 without one."""
    body: Any

    @property
    def target(self) -> tuple[str, str, str, str]:
        """Return the written object; for patches that test a uid, the object with that uid.

        Another reason in the status of a job is another write, and so are a resumption after a suspension, and the
        state and the annotation of a queue beside its counts.
        """
        operations = self.body if isinstance(self.body, list) else []
        written = {operation.get("path"): str(operation.get("value")) for operation in operations}
        uid, suspended = written.get("/metadata/uid", ""), written.get("/spec/suspension/scheduling", "")
        body = self.body if isinstance(self.body, dict) else {}
        state = (body.get("status") or {}).get("state")
        status = str(state.get("reason", "") if isinstance(state, dict) else state or "")
        annotations = ",".join((body.get("metadata") or {}).get("annotations") or ())
        return self.resource, self.namespace, self.name, uid + suspended or status or annotations

    @property
    def done(self) -> bool:
        """Return whether the request succeeded."""
        return self.status < 300


def read(log: Path, *, since: int = 0) -> Iterator[Request]:
    """Yield the requests logged after *since* bytes; an incomplete last line is ignored."""
    if not log.exists():
        return
    with log.open("rb") as lines:
        lines.seek(since)
        for line in lines:
            if line.endswith(b"\n"):
                yield _request(json.loads(line))


def size(log: Path) -> int:
    """Return the size of the log."""
    return log.stat().st_size if log.exists() else 0


def by_controller(log: Path, *, since: int = 0) -> list[Request]:
    """Return the controller's writes except those of leases and events."""
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
