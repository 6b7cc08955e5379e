"""Watches of collections: stored changes become events."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.deterministic.objects import Key, Kind, Object, with_metadata

Match = Callable[[Mapping[str, Any]], bool]
"""Whether an object is selected."""


@dataclass(frozen=True)
class Change:
    """One stored change; *obj* is ``None`` after a deletion and *previous* before a creation."""

    version: int
    kind: Kind
    key: Key
    obj: Object | None
    previous: Object | None


@dataclass(eq=False)
class Watch:
    """Events of one collection since a version; ``notify`` is called whenever one is added."""

    kind: Kind
    namespace: str
    matches: Match
    bookmarks: bool
    notify: Callable[[], None] = lambda: None
    ended: bool = False
    _events: list[Object] = field(default_factory=list)

    def take(self) -> list[Object]:
        """Return the events that arrived since the last call."""
        taken, self._events = self._events, []
        return taken

    def send(self, change: str, obj: Object) -> None:
        self._events.append({"type": change, "object": obj})
        self.notify()

    def end(self, status: Object | None = None) -> None:
        """End the stream, after an ERROR event with *status* if there is one."""
        self.ended = True
        if status is not None:
            self._events.append({"type": "ERROR", "object": status})
        self.notify()

    def observe(self, change: Change) -> None:
        """Add the event of *change*, if it concerns this watch."""
        if change.kind != self.kind or (self.namespace and change.key[0] != self.namespace):
            return
        now = change.obj is not None and self.matches(change.obj)
        before = change.previous is not None and self.matches(change.previous)
        if now:
            self.send("MODIFIED" if before else "ADDED", change.obj or {})
        elif before:
            self.send("DELETED", with_metadata(change.previous or {}, resourceVersion=str(change.version)))
