"""Which collections are watched, and where what they tell goes."""

from collections.abc import Callable, Hashable, MutableMapping
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
from controller.cache.facts import VOLCANO_JOB, BindingFacts, ObjectKey, TemplateKey
from controller.cache.informer import Informer, Pace, nothing_known
from controller.cache.store import Store
from controller.kube import Api

Informers = MutableMapping[str, Informer[Any]]
"""By the plural of what they watch, as metrics name it."""


def informers(api: Api, store: Store, pace: Pace) -> Informers:
    """Return an informer for each kind that decisions rest on."""
    # What a sink takes is what its own decode makes; six different types are beyond a tuple's.
    sinks: tuple[tuple[Resource, Any, Callable[[str, str], Hashable]], ...] = (
        (RESOURCE_BINDINGS, store.bindings, ObjectKey),
        (CLUSTER_RESOURCE_BINDINGS, store.cluster_bindings, ObjectKey),
        (JOBS, store.jobs, partial(TemplateKey, VOLCANO_JOB)),
        (QUEUES, store.queues, _name),
        (CLUSTERS, store.clusters, _name),
        (PRIORITY_CLASSES, store.priority_classes, _name),
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
            comparison=Comparison(api, kind.path, Kept(sink, key), page=pace.page),
        )
        for kind, sink, key in sinks
    }


def _name(_: str, name: str) -> str:
    return name


def _is_known(bindings: Collection[BindingFacts], event: Event) -> bool:
    """Say whether the answer to a write of ours has told this, or what came after it."""
    known = bindings.get(ObjectKey(event.namespace, event.name))
    return known is not None and event.version.isdecimal() and known.resource_version >= int(event.version)
