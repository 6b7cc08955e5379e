"""Watches a collection of the API server from a thread.

Tests and the demo use this instead of the product's informer, so that they do not depend on the code under test.
"""

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from queue import SimpleQueue
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

from localup.api import Api, ApiError
from localup.apply import WaitTimeoutError
from localup.controlplane import ControlPlane

Change = Literal["ADDED", "MODIFIED", "DELETED"]

_TIMEOUT_SECONDS: Final = 60
_RETRY_SECONDS: Final = 0.2
_END_SECONDS: Final = 2


@dataclass(frozen=True, slots=True)
class ObservedChange:
    """Change of an object in the collection *path*."""

    path: str
    change: Change
    object: Any

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name; the namespace is empty for cluster-scoped objects."""
        return _key(self.object)


class Watch:
    """Puts the events of one collection into *events*, in the server's order, until it is closed.

    Existing objects arrive as added. After a lost watch, intermediate events may be missing, but the final state of
    every object arrives.
    """

    def __init__(self, plane: ControlPlane, path: str, events: SimpleQueue[ObservedChange]) -> None:
        self._plane = plane
        self._path = path
        self._events = events
        self._known: dict[tuple[str, str], Any] = {}
        self._version = ""
        self._listed = threading.Event()
        self._closed = threading.Event()
        self._connection = _connection(plane)
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)

    def __enter__(self) -> Self:
        """Start the watch and return when existing objects have been delivered; later events are complete."""
        self._thread.start()
        if not self._listed.wait(_TIMEOUT_SECONDS):
            self.close()
            raise WaitTimeoutError(f"list {self._path}: not within {_TIMEOUT_SECONDS} s")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the thread, even if it is blocked."""
        self._closed.set()
        sock = self._connection.sock
        if sock is not None:
            # Not the TLS shutdown, which the reading thread uses.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        with self._plane.client("admin") as api, contextlib.closing(self._connection):
            while not self._closed.is_set():
                try:
                    self._version = self._version or self._list(api)
                    self._follow()
                except ApiError:
                    self._version = ""
                    time.sleep(_RETRY_SECONDS)
                except (OSError, ValueError, http.client.HTTPException):
                    self._connection.close()
                    time.sleep(_RETRY_SECONDS)

    def _list(self, api: Api) -> str:
        """Emit the differences to the last known state and return the version from which to watch."""
        answer = api.get(self._path)
        present = {_key(item): item for item in answer["items"]}
        for key in self._known.keys() - present.keys():
            self._emit("DELETED", self._known[key])
        for key, found in present.items():
            before = self._known.get(key)
            if before is None or _version(before) != _version(found):
                self._emit("MODIFIED" if before else "ADDED", found)
        self._listed.set()
        return str(answer["metadata"]["resourceVersion"])

    def _follow(self) -> None:
        """Emit the events of one watch until it ends."""
        for event in self._lines():
            if event["type"] == "ERROR":  # the version expired or the server failed: list again
                self._version = ""
                return
            if event["type"] != "BOOKMARK":
                self._emit(event["type"], event["object"])
            self._version = _version(event["object"])

    def _lines(self) -> Iterator[Any]:
        path = f"{self._path}?watch=true&allowWatchBookmarks=true&resourceVersion={self._version}"
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {self._plane.token('admin')}"})
        with self._connection.getresponse() as response:
            if response.status != HTTPStatus.OK:
                raise ConnectionError(f"watch of {self._path} responded with {response.status}")
            for line in response:
                yield json.loads(line)

    def _emit(self, change: Change, found: Any) -> None:
        if change == "DELETED":
            self._known.pop(_key(found), None)
        else:
            self._known[_key(found)] = found
        self._events.put(ObservedChange(self._path, change, found))


def _connection(plane: ControlPlane) -> http.client.HTTPSConnection:
    address = urlsplit(plane.url)
    context = ssl.create_default_context(cadata=plane.ca)
    return http.client.HTTPSConnection(address.hostname or "", address.port, timeout=_TIMEOUT_SECONDS, context=context)


def _key(found: Any) -> tuple[str, str]:
    return found["metadata"].get("namespace", ""), found["metadata"]["name"]


def _version(found: Any) -> str:
    return str(found["metadata"]["resourceVersion"])
