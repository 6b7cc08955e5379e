"""Implements Karmada's cluster controller for taints: by readiness, and eviction by NoExecute taints.

A cluster that is not ready accepts no new workloads; running ones stay. Only NoExecute taints, which operators set,
evict bindings, also suspended ones, with an eviction task.
"""

from typing import Final

import structlog

from localup.karmada.client import Client
from localup.karmada.conditions import condition
from localup.karmada.feasibility import target_names, tolerates
from localup.karmada.graceful_eviction_controller import tasks_of
from localup.karmada.objects import Key, Object, is_terminating, key_of, spec_of, status_of, with_spec
from localup.karmada.store import Store
from localup.karmada.workqueue import WorkQueue

log = structlog.get_logger()

NOT_READY: Final = {"effect": "NoSchedule", "key": "cluster.karmada.io/not-ready"}
UNREACHABLE: Final = {"effect": "NoSchedule", "key": "cluster.karmada.io/unreachable"}
_BY_READINESS: Final = {"True": None, "False": NOT_READY, "Unknown": UNREACHABLE}
_KEYS: Final = frozenset({NOT_READY["key"], UNREACHABLE["key"]})


class TaintController:
    """Taints clusters by readiness."""

    def __init__(self, clusters: Store, client: Client) -> None:
        self.queue = WorkQueue[Key]("taints", self._reconcile)
        self._clusters = clusters
        self._client = client
        clusters.add_event_handler(self._cluster_changed)

    def _cluster_changed(self, _: Object | None, new: Object | None) -> None:
        if new is not None:
            self.queue.add(key_of(new))

    async def _reconcile(self, key: Key) -> None:
        cluster = self._clusters.get(key)
        if cluster is None or is_terminating(cluster):
            return
        wanted = tainted(cluster)
        if wanted is not cluster and await self._client.update(self._clusters, cluster, wanted):
            log.info("cluster tainted", cluster=key.name, taints=[taint["key"] for taint in taints_of(wanted)])


class NoExecuteTaintManager:
    """Evicts bindings from clusters with a NoExecute taint that they do not tolerate."""

    def __init__(self, clusters: Store, bindings: Store, client: Client) -> None:
        self.queue = WorkQueue[Key]("taint manager", self._reconcile)
        self._clusters = clusters
        self._bindings = bindings
        self._client = client
        clusters.add_event_handler(self._cluster_changed)
        bindings.add_event_handler(self._binding_changed)

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        if new is None or (old is not None and taints_of(old) == taints_of(new)):
            return
        for binding in self._bindings:
            if key_of(new).name in target_names(binding):
                self.queue.add(key_of(binding))

    def _binding_changed(self, old: Object | None, new: Object | None) -> None:
        if new is not None and (old is None or target_names(old) != target_names(new)):
            self.queue.add(key_of(new))

    async def _reconcile(self, key: Key) -> None:
        binding = self._bindings.get(key)
        if binding is None or is_terminating(binding):
            return
        for name in target_names(binding):
            cluster = self._clusters.get(Key("", name))
            if cluster is not None and _has_untolerated_taint(cluster, binding):
                binding = await self._client.update(self._bindings, binding, evicted(binding, name))
                log.info("binding evicted by taint", binding=str(key), cluster=name)


def taints_of(cluster: Object) -> list[Object]:
    """Return the taints of a cluster."""
    return list(spec_of(cluster).get("taints") or ())


def tainted(cluster: Object) -> Object:
    """Return *cluster* with exactly the taint that matches its readiness."""
    said = condition(status_of(cluster).get("conditions") or (), "Ready")
    wanted = _BY_READINESS[said["status"]] if said else NOT_READY
    others = [taint for taint in taints_of(cluster) if taint["key"] not in _KEYS]
    has = [taint for taint in taints_of(cluster) if taint["key"] in _KEYS]
    if [item["key"] for item in has] == ([wanted["key"]] if wanted else []):
        return cluster
    return with_spec(cluster, taints=[*others, *([wanted] if wanted else [])] or None)


def evicted(
    binding: Object, cluster: str, *, producer: str = "TaintManager", reason: str = "TaintUntolerated"
) -> Object:
    """Return *binding* without the target and with an eviction task."""
    remaining = [item for item in spec_of(binding)["clusters"] if item["name"] != cluster]
    left = next(item for item in spec_of(binding)["clusters"] if item["name"] == cluster)
    task = {"fromCluster": cluster, "producer": producer, "purgeMode": "Gracefully", "reason": reason}
    replicas = {"replicas": left["replicas"]} if left.get("replicas") else {}
    tasks = tasks_of(binding)
    if all(item["fromCluster"] != cluster for item in tasks):
        tasks = [*tasks, {**task, **replicas}]
    return with_spec(binding, clusters=remaining or None, gracefulEvictionTasks=tasks)


def _has_untolerated_taint(cluster: Object, binding: Object) -> bool:
    """Return whether a cluster has a NoExecute taint that a binding does not tolerate."""
    placement = spec_of(binding).get("placement") or {}
    tolerations = placement.get("clusterTolerations") or ()
    repelling = [item for item in taints_of(cluster) if item.get("effect") == "NoExecute"]
    return any(not any(tolerates(toleration, taint) for toleration in tolerations) for taint in repelling)
