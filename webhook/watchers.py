"""What the webhook reads of the control plane: the queues, and its own configurations; writes nothing.

Nothing of it is needed to pause a binding. Without a kubeconfig nothing is read: jobs are judged without their
queues, and readiness is about the certificate alone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn, Self

import structlog

from controller.api.keys import QUEUES
from controller.cache.informer import DECODE_ERRORS, Informer, ObjectName, object_name
from controller.kube import Api, ApiError
from webhook.ca_bundle import PublishedBundle
from webhook.queue_cache import QueueCache
from webhook.queue_types import CachedQueue, decode_cached

log = structlog.get_logger(__name__)

#: The API server is waiting for our answer meanwhile.
LIST_TIMEOUT_SECONDS = 1.5


class ControlPlaneWatcher:
    """Reads on and on, and once more when asked."""

    def __init__(self, api: Api, queues: QueueCache, published: PublishedBundle) -> None:
        self._api = api
        self._queues = queues
        self._published = published
        self._informer = Informer(api, QUEUES.path, decode=decode_cached, sink=queues)
        self._lock = asyncio.Lock()
        self._refreshed_at = float("-inf")

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: Path, queues: QueueCache, published: PublishedBundle) -> AsyncIterator[Self]:
        """Open the way to the API server; raises `KubeconfigError`."""
        async with Api.connect(kubeconfig, user_agent="volcano-global-webhook", connections=4) as api:
            yield cls(api, queues, published)

    async def watch_queues(self) -> NoReturn:
        """Keep the queues as they are until cancelled."""
        await self._informer.run()

    async def poll_bundle(self, *, seconds: float) -> NoReturn:
        """Read the published bundle every so many *seconds* until cancelled."""
        while True:
            await self._published.read(self._api)
            await asyncio.sleep(seconds)

    async def refresh_queues(self) -> bool:
        """List the queues anew, and say whether that worked; who asks while others wait shares one list with them."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        try:
            async with asyncio.timeout(LIST_TIMEOUT_SECONDS), self._lock:
                if self._refreshed_at < asked_at:
                    began = loop.time()
                    found, unreadable = await self._list()
                    self._queues.replace(found, unreadable=unreadable)
                    self._refreshed_at = began
        except (TimeoutError, ApiError) as error:
            log.warning("queues not listed", reason=str(error) or f"not within {LIST_TIMEOUT_SECONDS:g} s")
            return False
        return True

    async def _list(self) -> tuple[list[CachedQueue], list[ObjectName]]:
        """Return all queues, and the names of those that cannot be read."""
        found: list[CachedQueue] = []
        unreadable: list[ObjectName] = []
        token = ""
        while True:
            page = await self._api.list_page(QUEUES.path, token=token)
            for item in page.items or ():
                try:
                    found.append(decode_cached(bytes(item)))
                except DECODE_ERRORS:
                    unreadable.append(object_name(bytes(item)))  # the informer tells of it
            token = page.metadata.continue_token
            if not token:
                return found, unreadable
