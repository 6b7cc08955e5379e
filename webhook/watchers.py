"""Watches what the webhook reads from the Karmada API server: queues, and the CA bundle that the API server trusts.

Suspending a binding needs neither. Without a kubeconfig nothing is read: jobs are validated without their queues,
and readiness depends on the certificate alone.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn, Self

import structlog
from cryptography import x509

from controller.api.keys import QUEUES
from controller.kube.certificates import is_trusted, load_certificates
from controller.kube.client import Api
from controller.kube.errors import ApiError
from controller.kube.informer import Informer, ObjectName, object_name
from controller.kube.watch_events import DECODE_ERRORS, is_older
from controller.kube.webhook_configurations import read_webhooks, webhook_kind
from webhook.queue_cache import QueueCache, QueueEntry, decode_cached

log = structlog.get_logger(__name__)

#: The API server waits for the answer to a review during this list.
LIST_TIMEOUT_SECONDS = 1.5
#: Time for API servers to observe a new bundle before a certificate that needs it is served.
_SETTLE_SECONDS = 5.0
_REMEDY = "run `python -m certs ensure` for this webhook configuration"


class PublishedBundle:
    """CA bundles that the API server verifies the webhook with, as read last."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bundles: Mapping[str, bytes] | None = None
        self._superseded: list[tuple[float, Mapping[str, bytes]]] = []
        """Earlier bundles that an API server may still use, with the time at which others were read."""
        self._read_error = f"webhook configuration {name!r} was not read yet"

    async def read(self, api: Api) -> None:
        """Read the bundles again; keep the previous ones if they cannot be read."""
        try:
            configurations = await read_webhooks(api, self._name)
        except (ApiError, ValueError) as error:
            if self._read_error != str(error):
                log.warning("webhook configuration read failed", name=self._name, reason=str(error))
            self._read_error = str(error)
            return
        bundles = {
            f"{webhook.name} ({webhook_kind(path)})": webhook.client_config.bundle
            for path, webhooks in configurations.items()
            for webhook in webhooks
        }
        now = time.monotonic()
        self._superseded = [(at, earlier) for at, earlier in self._superseded if now < at + _SETTLE_SECONDS]
        if self._bundles and bundles != self._bundles:
            self._superseded.append((now, self._bundles))
        self._bundles = bundles
        self._read_error = ""

    def not_ready_reason(self, chain: Sequence[x509.Certificate]) -> str | None:
        """Return why the API server would not trust the served *chain*, or ``None``."""
        if self._bundles is None:
            return f"cannot determine whether the served certificate is trusted: {self._read_error}"
        if not self._bundles:
            return f"webhook configuration {self._name!r} does not exist or has no webhooks: install it"
        if webhook := _uncovered_webhook(self._bundles, chain):
            return f"the bundle published for {webhook} does not cover the served certificate: {_REMEDY}"
        return None

    def reason_to_keep(self, served: Sequence[x509.Certificate], new: Sequence[x509.Certificate]) -> str | None:
        """Return why an API server that trusts *served* may not trust *new* yet, or ``None``."""
        if self.not_ready_reason(served):
            return None
        for bundles in (self._bundles or {}, *(earlier for _, earlier in self._superseded)):
            if webhook := _uncovered_webhook(bundles, new):
                return f"API servers may not trust it yet, by the bundle published for {webhook}: {_REMEDY}"
        return None


def _uncovered_webhook(bundles: Mapping[str, bytes], chain: Sequence[x509.Certificate]) -> str | None:
    """Return a webhook whose bundle does not cover *chain*, or ``None``."""
    uncovered = (webhook for webhook, bundle in bundles.items() if not is_trusted(chain, _certificates(bundle)))
    return next(uncovered, None)


def _certificates(bundle: bytes) -> list[x509.Certificate]:
    try:
        return load_certificates(bundle)
    except ValueError:
        return []


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
                    started_at, before = loop.time(), self._informer.version
                    queues, unreadable, version = await self._list()
                    # The watch may have received changes since then; a list from before it is of a restored server.
                    if is_older(version, before) or not is_older(version, self._informer.version):
                        self._queues.replace(queues, unreadable=unreadable)
                    self._refreshed_at = started_at
        except (TimeoutError, ApiError) as error:
            log.warning("queue list failed", reason=str(error) or f"not within {LIST_TIMEOUT_SECONDS:g} s")
            return False
        return True

    async def _list(self) -> tuple[list[QueueEntry], list[ObjectName], str]:
        """Return all queues, the names of those that cannot be read, and the version of the list."""
        queues: list[QueueEntry] = []
        unreadable: list[ObjectName] = []
        token = ""
        while True:
            page = await self._api.list_page(QUEUES.path, token=token)
            for item in map(bytes, page.items or ()):
                try:
                    queues.append(decode_cached(item))
                except DECODE_ERRORS:
                    unreadable.append(object_name(item))  # the informer logs it
            token = page.metadata.continue_token
            if not token:
                return queues, unreadable, page.metadata.resource_version
