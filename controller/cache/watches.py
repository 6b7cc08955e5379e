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
from controller.cache.collection import Collection
from controller.cache.consistency import Comparison, Kept
from controller.cache.events import Event
from controller.cache.facts import BindingFacts, ObjectKey
from controller.cache.informer import Informer, Pace, nothing_known
from controller.cache.store import Store
from controller.kube import Api

Informers = MutableMapping[str, Informer[Any]]
"""By the plural of what they watch, as metrics name it."""


def informers(api: Api, store: Store, pace: Pace) -> Informers:
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
            is_known=partial(_is_known, sink) if kind in written else nothing_known,
            pace=pace,
            comparison=Comparison(api, kind.path, Kept(sink), page=pace.page),
        )
        for kind, sink in sinks
    }


def _is_known(bindings: Collection[BindingFacts], event: Event) -> bool:
    """Say whether the answer to a write of ours has told this, or what came after it."""
    known = bindings.get(ObjectKey(event.namespace, event.name))
    return known is not None and event.version.isdecimal() and known.resource_version >= int(event.version)
