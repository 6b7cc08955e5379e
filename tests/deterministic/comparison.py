"""Sends one request sequence to two API servers and compares what they answer, up to versions, UIDs and times."""

import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.deterministic.clock import EPOCH
from tests.deterministic.random_requests import OLD_VERSION, UID, VERSION, Call, calls
from tests.deterministic.worlds import ROOTS, new_server, send

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_NO_UID = "11111111-2222-4333-8444-555555555555"
_WATCHES: tuple[dict[str, str], ...] = (
    {},
    {"labelSelector": "g=1"},
    {"fieldSelector": "metadata.name=a"},
    {"labelSelector": "g", "allowWatchBookmarks": "true"},
    {"resourceVersion": "0"},
)

Send = Callable[[str, str, Any, str, dict[str, str]], tuple[int, Any]]
"""Sends a request: method, path, body, kind of body, query."""


@dataclass
class Side:
    """One server under comparison, with the versions and UIDs that it returned."""

    seen: dict[tuple[str, str], list[tuple[str, str]]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    answer: Any = None
    """The last answer that was not a further page."""
    start: str = "1"
    """The version before the first request."""

    def send(self, method: str, path: str, body: Any, kind: str, query: dict[str, str]) -> tuple[int, Any]:
        raise NotImplementedError

    def watch(self, path: str, query: dict[str, str]) -> tuple[int, list[Any]]:
        raise NotImplementedError

    def managed_fields(self, body: Any) -> Any:
        """Return the owners of the fields of an object in an answer, ``None`` if they are not known."""
        raise NotImplementedError

    def call(self, call: Call) -> Any:
        """Send *call* and return its normalised answer; of a list, all pages."""
        query = {key: self._marked(value, call) for key, value in call.query}
        status, body = self.send(call.method, call.path, self._replaced(call.body, call), call.kind, query)
        self.answer = body
        if "dryRun" not in query:
            self._learn(call.plural, body)
        pages = [(status, self.normalised(body))]
        while call.method == "GET" and status == 200 and body["metadata"].get("continue"):
            query = {key: value for key, value in query.items() if not key.startswith("resourceVersion")}
            query["continue"] = body["metadata"]["continue"]
            status, body = self.send("GET", call.path, None, "json", query)
            pages.append((status, self.normalised(body)))
        return pages

    def normalised(self, value: Any, key: str = "") -> Any:
        """Return *value* with versions, UIDs and times replaced by what must be equal on both sides."""
        if isinstance(value, dict):
            shown = {key: self._member(key, value[key]) for key in sorted(value) if key != "managedFields"}
            if value.get("uid") and value.get("resourceVersion"):
                shown["resourceVersion"] = self._name("version", value["resourceVersion"])
            return shown
        if isinstance(value, list):
            items = [self.normalised(item) for item in value]
            # The server lists the causes of a conflict in the order of a Go map, and checks some fields twice.
            return sorted({json.dumps(item) for item in items}) if key == "causes" else items
        if isinstance(value, str):
            value = _UUID.sub(lambda match: self._name("uid", match[0]), _TIME.sub("time", value))
            return re.sub(r"record \(\d+\)|precondition \(\d+\)", "version", value)
        return value

    def _member(self, key: str, value: Any) -> Any:
        if key == "resourceVersion" and isinstance(value, str):
            return "version"
        return bool(value) if key == "continue" else self.normalised(value, key)

    def _name(self, kind: str, value: str) -> str:
        return self.names.setdefault(value, f"{kind}-{len(self.names)}")

    def _learn(self, plural: str, body: Any) -> None:
        metadata = body.get("metadata", {}) if isinstance(body, dict) else {}
        if metadata.get("uid") and metadata.get("resourceVersion"):
            history = self.seen.setdefault((plural, metadata["name"]), [])
            if not history or history[-1] != (metadata["uid"], metadata["resourceVersion"]):
                history.append((metadata["uid"], metadata["resourceVersion"]))

    def _replaced(self, body: Any, call: Call) -> Any:
        if body is None or isinstance(body, bytes):
            return body
        return json.loads(self._marked(json.dumps(body), call))

    def _marked(self, text: str, call: Call) -> str:
        history = self.seen.get((call.plural, call.of or call.name), [(_NO_UID, self.start)])
        uid, version = history[-1]
        text = text.replace(OLD_VERSION, history[0][1]).replace(VERSION, version)
        return text.replace(UID, uid)


class RealSide(Side):
    """A real server; *send* and *watch* reach it."""

    def __init__(self, send: Send, watch: Callable[[str, dict[str, str]], tuple[int, list[Any]]]) -> None:
        super().__init__()
        self._send, self._watch = send, watch
        self.latest = ""
        """The newest time that the server wrote."""

    def send(self, method: str, path: str, body: Any, kind: str, query: dict[str, str]) -> tuple[int, Any]:
        if method == "GET" and query.get("resourceVersion"):
            # Without a version the watch cache becomes current before it answers, which other versions do not wait for.
            self._send("GET", path, None, kind, {})
        status, answer = self._send(method, path, body, kind, query)
        metadata = answer.get("metadata", {}) if isinstance(answer, dict) else {}
        times = [entry.get("time", "") for entry in metadata.get("managedFields", ())]
        self.latest = max(self.latest, metadata.get("deletionTimestamp", ""), *times)
        return status, answer

    def watch(self, path: str, query: dict[str, str]) -> tuple[int, list[Any]]:
        return self._watch(path, query)

    def managed_fields(self, body: Any) -> Any:
        entries = body["metadata"].get("managedFields", ()) if isinstance(body, dict) else ()
        return [{key: value for key, value in entry.items() if key != "time"} for entry in entries]

    def empty(self) -> None:
        """Delete what an earlier sequence left."""
        for root in ROOTS.values():
            self._send("DELETE", root, {"propagationPolicy": "Background"}, "json", {})
            for item in self._send("GET", root, None, "json", {})[1]["items"]:
                path = f"{root}/{item['metadata']['name']}"
                self._send("PATCH", path, {"metadata": {"finalizers": None}}, "merge-patch", {})


class MemorySide(Side):
    """A new in-memory server, whose clock is set from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self._server = new_server(lambda: self.seconds)

    def set_time(self, text: str) -> None:
        if text:
            self.seconds = datetime.fromisoformat(text).timestamp() - EPOCH

    def send(self, method: str, path: str, body: Any, kind: str, query: dict[str, str]) -> tuple[int, Any]:
        response = send(self._server, method, path, body, kind, **query)
        return response.status, response.body

    def watch(self, path: str, query: dict[str, str]) -> tuple[int, list[Any]]:
        response = send(self._server, "GET", path, watch="true", **query)
        if response.watch is None:
            return response.status, [response.body]
        self._server.end_watch(response.watch)
        return response.status, response.watch.take()

    def managed_fields(self, body: Any) -> Any:
        metadata = body.get("metadata", {}) if isinstance(body, dict) else {}
        return self._server.managed_fields(metadata["uid"]) if "uid" in metadata else None


class Sequences:
    """Compares sequences on new pairs of sides, and counts them."""

    def __init__(self, sides: Callable[[], tuple[MemorySide, RealSide]]) -> None:
        self._sides = sides
        self.requests = 0
        self.sequences = 0
        self.events = 0

    def __str__(self) -> str:
        return f"{self.requests} requests and {self.events} events in {self.sequences} sequences"

    def compare(self, seed: int, count: int) -> str | None:
        """Send the sequence of *seed* to both sides; describe the first difference, after which the states differ."""
        memory, real = self._sides()
        real.empty()
        for side in (memory, real):
            side.start = side.send("GET", ROOTS["things"], None, "json", {})[1]["metadata"]["resourceVersion"]
        self.sequences += 1
        sent: list[Call] = []
        for call in calls(seed, count):
            sent.append(call)
            self.requests += 1
            expected = real.call(call)
            memory.set_time(real.latest)
            actual = memory.call(call)
            if actual != expected or (difference := _owners_differ(memory, real, call)):
                what = "" if actual != expected else f"\n{difference}"
                return f"{_described(seed, sent)}\nexpected {json.dumps(expected)}\nfound    {json.dumps(actual)}{what}"
        return self._compare_events(f"watches after seed {seed}", memory, real)

    def _compare_events(self, what: str, memory: Side, real: Side) -> str | None:
        asked = [(root, query) for root in ROOTS.values() for query in _WATCHES]
        answers = []
        for side in (memory, real):
            with ThreadPoolExecutor(len(asked)) as pool:
                sent = [pool.submit(_events, side, root, query) for root, query in asked]
            answers.append([side.normalised(events.result()) for events in sent])
        for at, actual, expected in zip(asked, *answers, strict=True):
            self.events += len(expected)
            if actual != expected:
                return f"{what}, {at}\nexpected {json.dumps(expected)}\nfound    {json.dumps(actual)}"
        return None


def _events(side: Side, root: str, query: Mapping[str, str]) -> list[Any]:
    """Return the status and the events of a watch of *root*, by default since the first request.

    Bookmarks are omitted, except at the end of initial events: the server chooses their times.
    """
    query = {"resourceVersion": side.start, "timeoutSeconds": "1", **query}
    status, events = side.watch(root, query)
    return [status, *(event for event in events if not _is_plain_bookmark(event))]


def _is_plain_bookmark(event: Any) -> bool:
    return event.get("type") == "BOOKMARK" and "annotations" not in event["object"]["metadata"]


def _owners_differ(memory: MemorySide, real: RealSide, call: Call) -> str:
    """Describe how the owners of the fields of the answered object differ; empty if they are equal."""
    if "dryRun" in json.dumps([call.query, str(call.body)]):
        return ""  # only the answer of the real server has them
    actual, expected = (side.managed_fields(side.answer) for side in (memory, real))
    if actual is None or actual == expected:
        return ""
    return f"owners expected {json.dumps(expected)}\nowners found    {json.dumps(actual)}"


def _described(seed: int, sent: list[Call]) -> str:
    """Describe the shortest prefix of a sequence that shows a difference, with the last requests to the same object."""
    last = sent[-1]
    same = [(number, call) for number, call in enumerate(sent) if call.plural == last.plural and call.name == last.name]
    lines = [f"difference in the first {len(sent)} requests of seed {seed}; the last ones to this object:"]
    return "\n".join(lines + [f"  {number}: {call}" for number, call in same[-8:]])
