"""Computes the fair shares and limits of queues from the objects that the demo watches.

The controller does not publish fair shares. The demo computes them with the same engine, from objects that every
client can read.
"""

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from controller.api.keys import CLUSTERS, JOBS, PRIORITY_CLASSES, QUEUES, RESOURCE_BINDINGS
from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.kube.collection import Collection
from localup.demo.usage import FairShares

WATCHED: Final = tuple(kind.path for kind in (QUEUES, CLUSTERS, PRIORITY_CLASSES, JOBS, RESOURCE_BINDINGS))

Objects = Mapping[str, Iterable[Any]]
"""Objects of each watched collection by path."""


def compute_fair_shares(objects: Objects) -> FairShares:
    """Return fair share and limit of every queue by resource."""
    store, state, now = Store(), Engine(), time.time_ns() // 1_000_000
    _fill(store.queues, objects.get(QUEUES.path, ()))
    _fill(store.clusters, map(_without_external_usage, objects.get(CLUSTERS.path, ())))
    _fill(store.priority_classes, objects.get(PRIORITY_CLASSES.path, ()))
    _fill(store.jobs, objects.get(JOBS.path, ()))
    _fill(store.bindings, objects.get(RESOURCE_BINDINGS.path, ()))
    store.sync_to(state, now)
    state.plan(now)
    if state.queue_shares is None:
        return FairShares()
    limits = state.queue_shares.quota.limits
    return FairShares(
        {str(name): due for name, due in state.queue_shares.fair_shares.items()},
        {str(name): limit.limit for name, limit in limits.items()},
    )


def _fill(sink: Collection[Any], objects: Iterable[Any]) -> None:
    sink.replace([sink.decode(json.dumps(item).encode()) for item in objects])


def _without_external_usage(cluster: Any) -> Any:
    """Return *cluster* with only its allocatable resources.

    After jobs end, a summary briefly still contains their usage, which a new engine state treats as external usage.
    In the demo only its own jobs run.
    """
    summary = (cluster.get("status") or {}).get("resourceSummary")
    if not summary:
        return cluster
    summary_without_usage = {"allocatable": summary.get("allocatable", {})}
    return {**cluster, "status": {**cluster["status"], "resourceSummary": summary_without_usage}}
