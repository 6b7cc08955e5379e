"""Implements Karmada's application failover: removes bindings from clusters where they stay unhealthy.

It does not verify that other clusters fit. Failed Volcano Jobs count as unhealthy.
"""

import time
from typing import Final

import structlog

from localup.karmada.client import Client
from localup.karmada.feasibility import target_names
from localup.karmada.objects import Key, Object, is_terminating, key_of, spec_of, status_of
from localup.karmada.store import Store
from localup.karmada.taints import evicted
from localup.karmada.workqueue import WorkQueue

log = structlog.get_logger()

_TOLERATION_SECONDS: Final = 300


class ApplicationFailoverController:
    """Evicts bindings from clusters in which they are unhealthy longer than tolerated."""

    def __init__(self, bindings: Store, client: Client) -> None:
        self.queue = WorkQueue[Key]("application failover", self._reconcile)
        self._bindings = bindings
        self._client = client
        self._unhealthy_since: dict[tuple[Key, str], float] = {}
        bindings.add_event_handler(self._binding_changed)

    def _binding_changed(self, _: Object | None, new: Object | None) -> None:
        if new is not None and toleration_of(new) is not None:
            self.queue.add(key_of(new))

    async def _reconcile(self, key: Key) -> None:
        binding = self._bindings.get(key)
        tolerated = None if binding is None or is_terminating(binding) else toleration_of(binding)
        if binding is None or tolerated is None:
            return
        now, unhealthy = time.time(), unhealthy_in(binding)
        remaining = {name: self._unhealthy_since.pop((key, name), now) for name in unhealthy}
        for known in [item for item in self._unhealthy_since if item[0] == key]:
            del self._unhealthy_since[known]
        for name, since in remaining.items():
            if now - since >= tolerated:
                gone = evicted(binding, name, producer="RBApplicationFailoverController", reason="ApplicationFailure")
                binding = await self._client.update(self._bindings, binding, gone)
                log.info("unhealthy binding evicted", binding=str(key), cluster=name)
            else:
                self._unhealthy_since[key, name] = since
                self.queue.add_after(key, since + tolerated - now)


def toleration_of(binding: Object) -> float | None:
    """Return how many seconds a binding may be unhealthy; ``None`` without application failover."""
    spec = spec_of(binding)
    application = (spec.get("failover") or {}).get("application")
    if application is None or not spec.get("propagateDeps"):
        return None
    return float((application.get("decisionConditions") or {}).get("tolerationSeconds", _TOLERATION_SECONDS))


def unhealthy_in(binding: Object) -> list[str]:
    """Return the target clusters in which a binding is unhealthy."""
    reported = status_of(binding).get("aggregatedStatus") or ()
    return [
        item["clusterName"]
        for item in reported
        if item.get("health") == "Unhealthy" and item["clusterName"] in target_names(binding)
    ]
