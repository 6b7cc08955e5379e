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
from webhook.published import Published
from webhook.queuebook import QueueBook
from webhook.queuespec import Remembered, remembered

log = structlog.get_logger(__name__)

#: The API server is waiting for our answer meanwhile.
LOOK_SECONDS = 1.5


class Observer:
    """Reads on and on, and once more when asked."""

    def __init__(self, api: Api, queues: QueueBook, published: Published) -> None:
        self._api = api
        self._queues = queues
        self._published = published
        self._informer = Informer(api, QUEUES.path, decode=remembered, sink=queues)
        self._lock = asyncio.Lock()
        self._looked_at = float("-inf")

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: Path, queues: QueueBook, published: Published) -> AsyncIterator[Self]:
        """Open the way to the API server; raises `KubeconfigError`."""
        async with Api.connect(kubeconfig, user_agent="volcano-global-webhook", connections=4) as api:
            yield cls(api, queues, published)

    async def follow_queues(self) -> NoReturn:
        """Keep the queues as they are until cancelled."""
        await self._informer.run()

    async def follow_bundle(self, *, seconds: float) -> NoReturn:
        """Read the published bundle every so many *seconds* until cancelled."""
        while True:
            await self._published.read(self._api)
            await asyncio.sleep(seconds)

    async def look_again(self) -> bool:
        """List the queues anew, and say whether that worked; who asks while others wait shares one list with them."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        try:
            async with asyncio.timeout(LOOK_SECONDS), self._lock:
                if self._looked_at < asked_at:
                    began = loop.time()
                    found, unreadable = await self._list()
                    self._queues.replace(found, unreadable=unreadable)
                    self._looked_at = began
        except (TimeoutError, ApiError) as error:
            log.warning("queues not listed", reason=str(error) or f"not within {LOOK_SECONDS:g} s")
            return False
        return True

    async def _list(self) -> tuple[list[Remembered], list[ObjectName]]:
        """Return all queues, and the names of those that cannot be read."""
        found: list[Remembered] = []
        unreadable: list[ObjectName] = []
        token = ""
        while True:
            page = await self._api.list_page(QUEUES.path, token=token)
            for item in page.items or ():
                try:
                    found.append(remembered(bytes(item)))
                except DECODE_ERRORS:
                    unreadable.append(object_name(bytes(item)))  # the informer tells of it
            token = page.metadata.continue_token
            if not token:
                return found, unreadable
