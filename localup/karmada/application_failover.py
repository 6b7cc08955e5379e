"""Karmada's application failover: what stays unhealthy in a cluster is taken out of it, and placed elsewhere.

Whether it fits elsewhere is not asked, and a failed Volcano Job counts as unhealthy.
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
    """Takes bindings out of clusters in which they have been unhealthy for too long."""

    def __init__(self, bindings: Store, writer: Client) -> None:
        self.queue = WorkQueue[Key]("application failover", self._reconcile)
        self._bindings = bindings
        self._writer = writer
        self._unhealthy_since: dict[tuple[Key, str], float] = {}
        bindings.listen(self._binding_changed)

    def _binding_changed(self, _: Object | None, new: Object | None) -> None:
        if new is not None and toleration_of(new) is not None:
            self.queue.add(key_of(new))

    async def _reconcile(self, key: Key) -> None:
        binding = self._bindings.get(key)
        tolerated = None if binding is None or is_terminating(binding) else toleration_of(binding)
        if binding is None or tolerated is None:
            return
        now, ill = time.time(), unhealthy_in(binding)
        kept = {name: self._unhealthy_since.pop((key, name), now) for name in ill}
        for known in [each for each in self._unhealthy_since if each[0] == key]:
            del self._unhealthy_since[known]
        for name, since in kept.items():
            if now - since >= tolerated:
                gone = evicted(binding, name, producer="RBApplicationFailoverController", reason="ApplicationFailure")
                binding = await self._writer.update(self._bindings, binding, gone)
                log.info("taken out by its failure", binding=str(key), cluster=name)
            else:
                self._unhealthy_since[key, name] = since
                self.queue.add_after(key, since + tolerated - now)


def toleration_of(binding: Object) -> float | None:
    """Return for how long a binding may be unhealthy; ``None`` where that moves it nowhere."""
    spec = spec_of(binding)
    application = (spec.get("failover") or {}).get("application")
    if application is None or not spec.get("propagateDeps"):
        return None
    return float((application.get("decisionConditions") or {}).get("tolerationSeconds", _TOLERATION_SECONDS))


def unhealthy_in(binding: Object) -> list[str]:
    """Return the clusters of a binding in which it is unhealthy."""
    told = status_of(binding).get("aggregatedStatus") or ()
    return [
        each["clusterName"]
        for each in told
        if each.get("health") == "Unhealthy" and each["clusterName"] in target_names(binding)
    ]
