"""Which collections are watched, and where what they tell goes."""

from collections.abc import Mapping
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
from controller.cache.informer import Informer, Pace
from controller.cache.store import Store
from controller.kube import Api

Informers = Mapping[str, Informer[Any]]
"""By the plural of what they watch, as metrics name it."""


def informers(api: Api, store: Store, pace: Pace) -> Informers:
    """Return an informer for each kind that decisions rest on."""
    sinks: tuple[tuple[Resource, Any], ...] = (
        (RESOURCE_BINDINGS, store.bindings),
        (CLUSTER_RESOURCE_BINDINGS, store.cluster_bindings),
        (JOBS, store.jobs),
        (QUEUES, store.queues),
        (CLUSTERS, store.clusters),
        (PRIORITY_CLASSES, store.priority_classes),
    )
    return {kind.plural: Informer(api, kind.path, decode=sink.decode, sink=sink, pace=pace) for kind, sink in sinks}
