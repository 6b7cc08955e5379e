"""Implements Karmada's status controllers: aggregates Works into bindings, and bindings into templates."""

import asyncio
import time
from contextlib import suppress
from typing import Final

import structlog

from controller.kube.errors import Conflict
from localup.karmada.aggregation import aggregate_status, template_status
from localup.karmada.binding import owner_of
from localup.karmada.client import STATUS, Client
from localup.karmada.informers import Informers
from localup.karmada.objects import Key, Object, is_terminating, key_of, status_of, uid_of
from localup.karmada.store import Store
from localup.karmada.workqueue import RetryError, WorkQueue
from localup.karmada.works import binding_key

log = structlog.get_logger()

_ATTEMPTS: Final = 10
_RETRY_SECONDS: Final = 0.05


class BindingStatusController:
    """Aggregates status for bindings of one kind."""

    def __init__(self, informers: Informers, bindings: Store, client: Client, *, stale: bool) -> None:
        self.queue = WorkQueue[Key]("collector", self._reconcile)
        self._informers = informers
        self._bindings = bindings
        self._stale = stale
        self._client = client
        informers.works.add_event_handler(self._work_changed)
        bindings.add_event_handler(self._binding_changed)

    def _work_changed(self, old: Object | None, new: Object | None) -> None:
        if old is None or new is None or status_of(old) != status_of(new):
            key = binding_key(new or old or {})
            if bool(key.namespace) == (self._bindings is self._informers.bindings):
                self.queue.add(key)

    def _binding_changed(self, old: Object | None, new: Object | None) -> None:
        """Queue scheduled bindings whose template changed, and all scheduled ones after a restart."""
        if new is None or "lastScheduledTime" not in status_of(new):
            return
        if old is None or _template_version(old) != _template_version(new):
            self.queue.add(key_of(new))

    async def _reconcile(self, key: Key) -> None:
        """Aggregate the status of one binding.

        Conflicts are retried here, because a requeue would clear a stale status.
        """
        for _ in range(_ATTEMPTS):
            with suppress(Conflict):
                await self._collect(key)
                return
            await asyncio.sleep(_RETRY_SECONDS)
        raise RetryError(f"binding {key} changed during every attempt")

    async def _collect(self, key: Key) -> None:
        binding = self._bindings.get(key)
        if binding is None or is_terminating(binding):
            return
        updated = aggregate_status(binding, self._informers.works_of(binding), now=time.time())
        news = await self._client.update(self._bindings, binding, updated, part=STATUS)
        # As in Karmada, a pass that writes keeps the template's status; only the next pass clears it.
        stale = self._stale and news is not binding
        binding = news
        store = self._informers.store_of(binding["spec"]["resource"])
        template = self._informers.template_of(binding)
        if store is None or template is None or is_terminating(template) or owner_of(binding) != uid_of(template):
            return
        said = template_status(template, binding, now=time.time(), stale=stale)
        await self._client.update(store, template, said, part=STATUS)


def _template_version(binding: Object) -> str:
    return str(binding["spec"]["resource"].get("resourceVersion", ""))
