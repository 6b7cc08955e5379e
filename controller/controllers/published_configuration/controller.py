"""Publishes the active configuration and its revision in a ConfigMap next to the lease.

The command line plans with it. The leader writes it, only when the content differs; what it replaces may be the
configuration of a former process.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec
import structlog

from controller.api.configuration import (
    ConfigurationError,
    VolcanoGlobalConfiguration,
    published_data,
    read_published,
    read_published_kinds,
)
from controller.api.keys import CONFIG_MAPS, PUBLISHED_CONFIGURATION
from controller.kube.client import Api
from controller.kube.errors import ApiError, Conflict, NotFound
from controller.kube.timing import Backoff

#: Interval at which a ConfigMap that was deleted or changed by others is detected, in seconds.
_CHECK_SECONDS = 300.0

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class ConfigurationPublisher:
    """Publishes the configuration while ``run`` is running and this process leads."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        *,
        configuration: Callable[[], VolcanoGlobalConfiguration],
        may_write: Callable[[], bool],
        on_replace: Callable[[VolcanoGlobalConfiguration], None] = lambda _: None,
    ) -> None:
        """Call *on_replace* with each configuration before it is replaced, or at least with its gated kinds."""
        self._api = api
        self._path = CONFIG_MAPS.item_path(namespace, PUBLISHED_CONFIGURATION)
        self._configuration = configuration
        self._may_write = may_write
        self._on_replace = on_replace
        self._backoff = Backoff(initial=1, maximum=60)
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Publish after a change of leadership or of the configuration."""
        self._wake.set()

    async def run(self) -> NoReturn:
        """Publish until cancelled."""
        while True:
            delay = _CHECK_SECONDS
            if self._may_write():
                try:
                    await self.publish()
                    self._backoff.reset()
                except ApiError as error:
                    delay = self._backoff.next_delay(at_least=error.retry_after)
                    log.warning("configuration not published", path=self._path, error=str(error), again_in=delay)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            self._wake.clear()

    async def publish(self) -> None:
        """Write the ConfigMap if its content differs from the active configuration; raise `ApiError`."""
        data = published_data(self._configuration())
        try:
            observed: dict[str, Any] = msgspec.json.decode(await self._api.get(self._path))
        except NotFound:
            folder, _, name = self._path.rpartition("/")
            document = {"apiVersion": CONFIG_MAPS.api_version, "kind": CONFIG_MAPS.kind, "metadata": {"name": name}}
            with contextlib.suppress(Conflict):  # another process created it; the next check compares its content
                await self._api.create(folder, msgspec.json.encode({**document, "data": data}))
        else:
            if observed.get("data") == data:
                return
            self._read_replaced(observed.get("data"))
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": observed["metadata"]["resourceVersion"]}
            await self._api.patch(
                self._path, msgspec.json.encode([test, {"op": "add", "path": "/data", "value": data}])
            )
        log.info("configuration published", path=self._path, revision=data["revision"])

    def _read_replaced(self, observed: Any) -> None:
        try:
            replaced = _published(observed if isinstance(observed, dict) else {})
        except ConfigurationError as error:
            log.warning("published configuration unreadable", path=self._path, error=str(error))
        else:
            self._on_replace(replaced)


def _published(data: Mapping[str, Any]) -> VolcanoGlobalConfiguration:
    """Return the published configuration; of a newer version, with keys that this one does not know, its kinds."""
    try:
        return read_published(data)[0]
    except ConfigurationError:
        return read_published_kinds(data)
