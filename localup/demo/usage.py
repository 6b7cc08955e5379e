"""Usage, fair shares and limits of queues over time.

The controller does not publish fair shares. The demo computes them with the same engine, from objects that every
client can read.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import inf
from typing import Any, Final

from controller.api.keys import CLUSTERS, JOBS, PRIORITY_CLASSES, QUEUES, RESOURCE_BINDINGS
from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.engine.state.resources import EMPTY, Resources
from controller.kube.collection import Collection

Amounts = Mapping[str, Fraction | int]

"""Amounts in base units by resource."""


@dataclass(frozen=True, slots=True)
class FairShares:
    """Fair share and limit of each queue."""

    fair_share: Mapping[str, Amounts] = field(default_factory=dict)
    limits: Mapping[str, Amounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """Usage of a queue at one time; amounts in base units."""

    queue: str
    used: Resources = EMPTY
    fair_share: Amounts = field(default_factory=dict)
    limit: Amounts = field(default_factory=dict)
    admitted: int = 0
    pending: int = 0


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak usage of a resource and the queue's fair share at that time."""

    used: int = 0
    fair_share: Fraction | int = 0


@dataclass(slots=True)
class UsageHistory:
    """Usage of all queues over time."""

    moments: list[tuple[float, Sequence[QueueUsage]]] = field(default_factory=list)

    def record(self, at: float, standings: Sequence[QueueUsage]) -> None:
        """Record the usage of all queues from time *at* on."""
        self.moments.append((at, standings))

    def peak(self, queue: str, resource: str) -> Peak:
        """Return the first peak of *resource* in *queue*."""
        best = Peak()
        for _, standings in self.moments:
            for standing in standings:
                if standing.queue == queue and standing.used.get(resource, 0) > best.used:
                    best = Peak(standing.used[resource], standing.fair_share.get(resource, 0))
        return best

    def contention(
        self, first: str, second: str, resource: str, *, before: float = inf
    ) -> tuple[float, Fraction, Fraction] | None:
        """Return how long both queues had pending jobs while using *resource*, and their average usage.

        Only times before *before* count. Returns ``None`` if both were never pending at once.
        """
        lasted, held = 0.0, [0.0, 0.0]
        moments = [moment for moment in self.moments if moment[0] < before]
        for (at, standings), (until, _) in pairwise(moments):
            pair = [standing for name in (first, second) for standing in standings if standing.queue == name]
            amounts = [item.used.get(resource, 0) for item in pair]
            if len(pair) == len(held) and all(item.pending for item in pair) and any(amounts):
                lasted += until - at
                held = [sum_ + amount * (until - at) for sum_, amount in zip(held, amounts, strict=True)]
        if not lasted:
            return None
        return lasted, Fraction(held[0] / lasted), Fraction(held[1] / lasted)


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
