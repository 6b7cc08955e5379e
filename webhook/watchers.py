"""Watches what the webhook reads from the Karmada API server: queues and its own webhook configurations.

Suspending a binding needs neither. Without a kubeconfig nothing is read: jobs are validated without their queues,
and readiness depends on the certificate alone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn, Self

import structlog

from controller.api.keys import QUEUES
from controller.kube.client import Api
from controller.kube.errors import ApiError
from controller.kube.informer import DECODE_ERRORS, Informer, ObjectName, object_name
from webhook.ca_bundle import PublishedBundle
from webhook.queue_cache import QueueCache
from webhook.queue_types import CachedQueue, decode_cached

log = structlog.get_logger(__name__)

#: The API server waits for the answer to a review during this list.
LIST_TIMEOUT_SECONDS = 1.5


class ControlPlaneWatcher:
    """Watches queues, polls the published bundle, and lists queues again on request."""

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
        """Connect to the API server; raises `KubeconfigError`."""
        async with Api.connect(kubeconfig, user_agent="volcano-global-webhook", connections=4) as api:
            yield cls(api, queues, published)

    async def watch_queues(self) -> NoReturn:
        """Update the cached queues until cancelled."""
        await self._informer.run()

    async def poll_bundle(self, *, seconds: float) -> NoReturn:
        """Read the published bundle every *seconds* until cancelled."""
        while True:
            await self._published.read(self._api)
            await asyncio.sleep(seconds)

    async def refresh_queues(self) -> bool:
        """List the queues again and return whether that succeeded; concurrent callers share one list."""
        loop = asyncio.get_running_loop()
        requested_at = loop.time()
        try:
            async with asyncio.timeout(LIST_TIMEOUT_SECONDS), self._lock:
                if self._refreshed_at < requested_at:
                    started_at = loop.time()
                    queues, unreadable = await self._list()
                    self._queues.replace(queues, unreadable=unreadable)
                    self._refreshed_at = started_at
        except (TimeoutError, ApiError) as error:
            log.warning("queue list failed", reason=str(error) or f"not within {LIST_TIMEOUT_SECONDS:g} s")
            return False
        return True

    async def _list(self) -> tuple[list[CachedQueue], list[ObjectName]]:
        """Return all queues, and the names of those that cannot be read."""
        queues: list[CachedQueue] = []
        unreadable: list[ObjectName] = []
        token = ""
        while True:
            page = await self._api.list_page(QUEUES.path, token=token)
            for item in page.items or ():
                try:
                    queues.append(decode_cached(bytes(item)))
                except DECODE_ERRORS:
                    unreadable.append(object_name(bytes(item)))  # the informer logs it
            token = page.metadata.continue_token
            if not token:
                return queues, unreadable
