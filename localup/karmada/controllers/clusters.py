"""Maintains the status of simulated Clusters, their execution namespaces, and their taints by readiness.

A status is written when it changes, at most once per period. A cluster that is not ready accepts no new workloads;
running ones stay.
"""

import time
from contextlib import suppress
from typing import Final

import structlog

from controller.kube.errors import Conflict
from localup.karmada.cache import STATUS, ControlPlaneCache
from localup.karmada.controller import Controller, ObjectController
from localup.karmada.controllers.eviction import taints_of
from localup.karmada.members.summary import MemberRegistry, with_summary
from localup.karmada.names import execution_namespace
from localup.karmada.objects import (
    NAMESPACE,
    Key,
    Object,
    condition,
    generation_of,
    is_terminating,
    key_of,
    status_of,
    with_spec,
)


class TaintController(ObjectController):
    """Taints clusters by readiness."""

    async def reconcile_object(self, item: Object) -> None:
        """Set the taint that matches the readiness of the cluster."""
        wanted = tainted(item)
        if wanted is not item:
            await self.cache.update(item, wanted)
            log.info("cluster tainted", cluster=key_of(item).name, taints=[taint["key"] for taint in taints_of(wanted)])


log = structlog.get_logger()

NOT_READY: Final = {"effect": "NoSchedule", "key": "cluster.karmada.io/not-ready"}
UNREACHABLE: Final = {"effect": "NoSchedule", "key": "cluster.karmada.io/unreachable"}
_BY_READINESS: Final = {"True": None, "False": NOT_READY, "Unknown": UNREACHABLE}
_KEYS: Final = frozenset({NOT_READY["key"], UNREACHABLE["key"]})


class ClusterStatusController(Controller[str]):
    """Updates the status of Clusters."""

    def __init__(self, cache: ControlPlaneCache, registry: MemberRegistry, *, period: float, late: float = 0) -> None:
        super().__init__(cache)
        self._late = late
        self._registry = registry
        self._period = period
        self._has_namespace: set[str] = set()
        self._due: dict[str, float] = {}
        cache.clusters.add_event_handler(self._cluster_changed)
        registry.add_event_handler(self.queue.add)

    def on_member_changed(self, name: str) -> None:
        """Queue the summary of a member for an update, after the summary delay."""
        if self._late:
            self.queue.add_after(name, self._late)
        else:
            self.queue.add(name)

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        if new is not None and (old is None or generation_of(old) != generation_of(new)):
            self.queue.add(key_of(new).name)

    async def reconcile(self, key: str) -> None:
        """Write the status of the Cluster *key* unless it was written within the period."""
        name, cluster = key, self.cache.clusters.get(Key("", key))
        if cluster is None or is_terminating(cluster):
            return
        await self._ensure_namespace(name)
        registered = self._registry.members.get(name)
        if registered is None:
            return
        early = self._due.get(name, 0) - time.monotonic()
        if early > 0:
            self.queue.add_after(name, early)
            return
        updated = with_summary(cluster, registered.description, registered.member, now=time.time())
        if await self.cache.update(cluster, updated, part=STATUS) is not cluster:
            self._due[name] = time.monotonic() + self._period
            log.debug("cluster status written", cluster=name)

    async def _ensure_namespace(self, name: str) -> None:
        if name not in self._has_namespace:
            metadata = {"name": execution_namespace(name)}
            with suppress(Conflict):
                await self.cache.create(
                    {"apiVersion": NAMESPACE.api_version, "kind": NAMESPACE.name, "metadata": metadata}
                )
            self._has_namespace.add(name)


def tainted(cluster: Object) -> Object:
    """Return *cluster* with exactly the taint that matches its readiness."""
    said = condition(status_of(cluster).get("conditions") or (), "Ready")
    wanted = _BY_READINESS[said["status"]] if said else NOT_READY
    others = [taint for taint in taints_of(cluster) if taint["key"] not in _KEYS]
    has = [taint for taint in taints_of(cluster) if taint["key"] in _KEYS]
    if [item["key"] for item in has] == ([wanted["key"]] if wanted else []):
        return cluster
    return with_spec(cluster, taints=[*others, *([wanted] if wanted else [])] or None)
