"""Which collections are watched, and where what they tell goes."""

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
from controller.cache.cache_audit import CacheAudit, CollectionView
from controller.cache.collection import Collection
from controller.cache.informer import Informer, WatchOptions, never_known
from controller.cache.objects import CachedBinding, ObjectKey
from controller.cache.store import Store
from controller.cache.watch_events import WatchEvent
from controller.kube import Api

Informers = MutableMapping[str, Informer[Any]]
"""By the plural of what they watch, as metrics name it."""


def build_informers(api: Api, store: Store, pace: WatchOptions) -> Informers:
    """Return an informer for each kind that decisions rest on."""
    # What a sink takes is what its own decode makes; six different types are beyond a tuple's.
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
            pace=pace,
            comparison=CacheAudit(api, kind.path, CollectionView(sink), page=pace.page),
        )
        for kind, sink in sinks
    }


def _is_own_write(bindings: Collection[CachedBinding], event: WatchEvent) -> bool:
    """Say whether the answer to a write of ours has told this, or what came after it."""
    known = bindings.get(ObjectKey(event.namespace, event.name))
    return known is not None and event.version.isdecimal() and known.resource_version >= int(event.version)
