"""Watches a collection for a test or a benchmark."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from controller.kube.client import Api
from controller.kube.informer import Informer, WatchOptions


class Watcher:
    """A sink that ignores deletions and objects that cannot be decoded."""

    def replace_in_steps(self, objects: Sequence[Any], **_: object) -> Iterator[None]:
        return (self.upsert(obj) for obj in objects)

    def upsert(self, obj: Any) -> None:
        """Observe an object."""

    def remove(self, obj: Any) -> None:
        """Ignore a deletion."""

    def forget(self, namespace: str, name: str) -> None:
        """Ignore an object that cannot be decoded."""


@asynccontextmanager
async def watching(
    api: Api, path: str, sink: Watcher, *, decode: Callable[[bytes], Any], page: int = 500
) -> AsyncIterator[None]:
    """Deliver the objects at *path* to *sink*; the block begins when all are listed."""
    informer = Informer(api, path, decode=decode, sink=sink, options=WatchOptions(page=page))
    task = asyncio.create_task(informer.run())
    try:
        await informer.synced.wait()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
