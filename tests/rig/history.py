"""Reads every state of every object from etcd, independently of API server and controller.

The store keeps each revision, so faults of the API server, its watches or the controller hide nothing. The
resourceVersion of an object is the revision.
"""

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.waiting import LIMIT_SECONDS

Key = tuple[str, str]
"""Namespace and name; the namespace is empty for cluster-scoped objects."""

_RETRY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Change:
    """Creation, change or deletion of an object."""

    revision: int
    kind: str
    """The plural, as in the store's keys."""
    key: Key
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    at: float
    """Time of observation on the monotonic clock."""


@dataclass
class History:
    """All changes since *revision* under one prefix of the store, and the current objects."""

    url: str
    prefix: str
    revision: int = 0
    changes: list[Change] = field(default_factory=list)
    now: dict[str, dict[Key, dict[str, Any]]] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def follow(self) -> None:
        """Read until cancelled, also through outages of the store."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(), read_bufsize=2**24) as session:
            while True:
                try:
                    await self._read(session)
                except (aiohttp.ClientError, OSError, ValueError):
                    await asyncio.sleep(_RETRY_SECONDS)

    async def _read(self, session: aiohttp.ClientSession) -> None:
        begins, ends = self.prefix + "/", self.prefix + "0"
        wanted = {"key": _coded(begins), "range_end": _coded(ends), "start_revision": self.revision + 1}
        async with session.post(f"{self.url}/v3/watch", json={"create_request": wanted}) as answer:
            async for line in answer.content:
                result = json.loads(line)["result"]
                events = result.get("events", ())
                for event in events:
                    self._take(event)
                if events:
                    self.revision = max(self.revision, int(events[-1]["kv"]["mod_revision"]))
                    async with self._changed:
                        self._changed.notify_all()

    def _take(self, event: dict[str, Any]) -> None:
        kind, key = _named(base64.b64decode(event["kv"]["key"]).decode().removeprefix(self.prefix + "/"))
        here = self.now.setdefault(kind, {})
        before = here.pop(key, None)
        after = None if event.get("type") == "DELETE" else _object(event["kv"].get("value", ""))
        if after is not None:
            here[key] = after
        revision = int(event["kv"]["mod_revision"])
        self.changes.append(Change(revision, kind, key, before, after, time.monotonic()))

    async def until(self, question: Callable[["History"], bool], what: str, *, seconds: float = LIMIT_SECONDS) -> None:
        """Wait until the condition holds; a missing object counts as false."""

        def answer() -> bool:
            with contextlib.suppress(KeyError):
                return question(self)
            return False

        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(answer)
        except TimeoutError as error:
            raise AssertionError(f"{what}: not within {seconds:g} s") from error

    async def reached(self, revision: int) -> None:
        """Wait until *revision* has been read."""
        await self.until(lambda seen: seen.revision >= revision, f"revision {revision} read")

    def of(self, kind: str) -> Iterator[Change]:
        """Yield the changes of one kind."""
        return (change for change in self.changes if change.kind == kind)


@asynccontextmanager
async def run_in_background(*players: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Run *players* while the block runs; a failure ends the block and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(player) for player in players]
            yield
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as failures:
        if len(failures.exceptions) > 1:
            raise
        raise failures.exceptions[0] from None


@asynccontextmanager
async def followed(url: str, prefix: str, *, since: int = 0) -> AsyncIterator[History]:
    """Follow the store while the block runs."""
    history = History(url, prefix, revision=since)
    async with run_in_background(history.follow()):
        yield history


async def present(url: str) -> int:
    """Return the store's current revision."""
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v3/kv/range", json={"key": "AA=="}) as answer:
        return int((await answer.json())["header"]["revision"])


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _named(path: str) -> tuple[str, Key]:
    """Parse ``group/plural/namespace/name``; only groups of CRDs contain a dot."""
    parts = path.split("/")
    plural, *rest = parts[1:] if "." in parts[0] else parts
    if parts[0] == "jobs":
        plural = "batch/jobs"  # of Kubernetes; Volcano's have the same plural
    return plural, (rest[0] if len(rest) > 1 else "", rest[-1] if rest else "")


def _object(coded: str) -> dict[str, Any]:
    """Return a stored JSON object; for other encodings only that it exists."""
    raw = base64.b64decode(coded)
    return json.loads(raw) if raw.startswith(b"{") else {}
