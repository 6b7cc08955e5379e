"""Counts resumed bindings of one namespace with its own watch, independent of the controller."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from controller.api.keys import RESOURCE_BINDINGS
from controller.kube.client import Api
from tests.watching import Watcher, watching


class _Suspension(msgspec.Struct):
    scheduling: bool = False


class _Spec(msgspec.Struct):
    suspension: _Suspension | None = None


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""


class Seen(msgspec.Struct):
    """The fields of a binding that are read."""

    metadata: _Meta
    spec: _Spec

    @property
    def is_resumed(self) -> bool:
        return self.spec.suspension is None or not self.spec.suspension.scheduling


class Resumed(Watcher):
    """When each binding of *namespace* was first observed resumed, in seconds of the monotonic clock."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.at: dict[str, float] = {}
        self._wanted = 0
        self._reached = asyncio.Event()

    def upsert(self, seen: Seen) -> None:
        if seen.metadata.namespace == self.namespace and seen.is_resumed and seen.metadata.name not in self.at:
            self.at[seen.metadata.name] = time.monotonic()
            if len(self.at) == self._wanted:
                self._reached.set()

    def remove(self, seen: Seen) -> None:
        self.at.pop(seen.metadata.name, None)

    async def reached(self, count: int, *, seconds: float) -> float:
        """Return when *count* bindings were resumed; raise ``TimeoutError`` if that takes too long."""
        self._wanted = count
        self._reached.clear()
        try:
            async with asyncio.timeout(seconds):
                if len(self.at) < count:
                    await self._reached.wait()
        except TimeoutError as error:
            raise TimeoutError(f"{len(self.at)} of {count} bindings were resumed in {seconds:.0f} s") from error
        return sorted(self.at.values())[count - 1]


@asynccontextmanager
async def resumed_bindings(api: Api, namespace: str) -> AsyncIterator[Resumed]:
    """Watch the bindings of *namespace* while the block runs."""
    resumed = Resumed(namespace)
    path = RESOURCE_BINDINGS.item_path(namespace, "").rstrip("/")
    async with watching(api, path, resumed, decode=msgspec.json.Decoder(Seen).decode):
        yield resumed
