"""Creates the informers of all built-in kinds, each with its collection as the sink."""

from collections.abc import MutableMapping
from functools import partial
from typing import Any

from controller.api.keys import (
    CLUSTER_RESOURCE_BINDINGS,
    CLUSTERS,
    JOBS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_BINDINGS,
    Resource,
)
from controller.cache.objects import CachedBinding, ObjectKey
from controller.cache.store import Store
from controller.kube.cache_audit import CacheAudit, CollectionView
from controller.kube.client import Api
from controller.kube.collection import Collection
from controller.kube.informer import Informer, WatchOptions, never_known
from controller.kube.watch_events import WatchEvent

Informers = MutableMapping[str, Informer[Any]]
"""Informers by the plural of their resource, which metrics use as a label."""


def build_informers(api: Api, store: Store, options: WatchOptions) -> Informers:
    """Return an informer for each kind that decisions depend on."""
    # Each sink takes what its own decode returns; a tuple cannot express these six types.
    sinks: tuple[tuple[Resource, Any], ...] = (
        (RESOURCE_BINDINGS, store.bindings),
        (CLUSTER_RESOURCE_BINDINGS, store.cluster_bindings),
        (JOBS, store.jobs),
        (QUEUES, store.queues),
        (CLUSTERS, store.clusters),
        (PRIORITY_CLASSES, store.priority_classes),
    )
    written = {RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS}
    return {
        kind.plural: Informer(
            api,
            kind.path,
            decode=sink.decode,
            sink=sink,
            is_known=partial(_is_own_write, sink) if kind in written else never_known,
            options=options,
            audit=CacheAudit(api, kind.path, CollectionView(sink), page=options.page),
        )
        for kind, sink in sinks
    }


def _is_own_write(bindings: Collection[CachedBinding], event: WatchEvent) -> bool:
    """Whether the cache already has this version, from the response to a write of ours."""
    known = bindings.get(ObjectKey(event.namespace, event.name))
    return known is not None and event.version.isdecimal() and known.resource_version >= int(event.version)
