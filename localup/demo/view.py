"""State of the demo as observed through its watches, with usage, fair shares and limits of queues over time.

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

from controller.api.keys import (
    BATCH_HYPERJOBS,
    CLUSTERS,
    HYPERJOB_KIND,
    HYPERJOBS,
    JOBS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_BINDINGS,
)
from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.engine.state.resources import EMPTY, Resources
from controller.kube.collection import Collection
from localup.demo.checks import InvariantChecker
from localup.demo.progress import (
    BindingStatus,
    HyperJobTracker,
    Timeline,
    TimelineEntry,
    binding_of_work,
    parse_binding,
)
from localup.demo.scenario import DemoHyperJob, DemoJob, Limits, has_summary
from localup.watch import ObservedChange

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


WORKS: Final = "/apis/work.karmada.io/v1alpha1/works"

_HYPERJOBS: Final = frozenset({HYPERJOBS.path, BATCH_HYPERJOBS.path})

PATHS: Final = (*WATCHED, *sorted(_HYPERJOBS), WORKS)


class View:
    """Processes watch events and tracks the progress of jobs, HyperJobs and queues.

    Jobs outside the scenario are parts of HyperJobs or submitted by a user.

    Args:
        scenario: The jobs and the HyperJobs of the scenario by name.
        limits: The limits of queues and clusters.
        queues: The queues to show, in this order.
    """

    def __init__(
        self, scenario: tuple[Mapping[str, DemoJob], Mapping[str, DemoHyperJob]], limits: Limits, queues: Sequence[str]
    ) -> None:
        self._scenario, self._jobs = scenario[0], dict(scenario[0])
        self.timeline = Timeline()
        self.hyperjobs = HyperJobTracker(scenario[1])
        self.usage = UsageHistory()
        self.invariants = InvariantChecker(self._jobs, limits)
        self._queues = queues
        self._objects: dict[str, dict[tuple[str, str], Any]] = {path: {} for path in PATHS}
        self._early_bindings: dict[str, list[BindingStatus]] = {}
        """Binding versions observed before their jobs, which arrive through another watch."""

    def on_event(self, event: ObservedChange, at: float) -> list[TimelineEntry]:
        """Process a watch event and return new timeline entries."""
        is_gone = event.change == "DELETED"
        if is_gone:
            self._objects[event.path].pop(event.key, None)
        else:
            self._objects[event.path][event.key] = event.object
        if event.path == RESOURCE_BINDINGS.path:
            return self._on_binding(parse_binding(event.object), at, is_gone=is_gone)
        if event.path == JOBS.path:
            return self._on_job(event.object, at, is_gone=is_gone)
        if event.path in _HYPERJOBS and not is_gone:
            return self.hyperjobs.on_hyperjob(event.object, at)
        if event.path in _HYPERJOBS:
            self.hyperjobs.forget("/".join(event.key))
        elif event.path == WORKS and event.change == "ADDED" and (binding := binding_of_work(event.object)):
            self.invariants.observe_work(binding, int(event.object["metadata"]["resourceVersion"]))
        return []

    @property
    def is_over(self) -> bool:
        """Return whether all jobs and HyperJobs have reached their expected final state."""
        return self.timeline.is_over and all(hyperjob.is_settled for hyperjob in self.hyperjobs.all.values())

    @property
    def are_jobs_settled(self) -> bool:
        """Return whether only HyperJobs are unfinished."""
        return self.timeline.are_jobs_settled and self.hyperjobs.have_been_pending

    def have_summaries(self, clusters: Iterable[str]) -> bool:
        """Return whether these member clusters exist and report a resource summary."""
        here = self._objects[CLUSTERS.path]
        return all(("", name) in here and has_summary(here["", name]) for name in clusters)

    @property
    def violations(self) -> list[str]:
        """Return all violations; call it after the last event."""
        return [*self.invariants.violations, *self.invariants.unadmitted_works(), *self.hyperjobs.violations]

    def _on_binding(self, status: BindingStatus, at: float, *, is_gone: bool) -> list[TimelineEntry]:
        if is_gone:
            self.invariants.forget(status.job)
            self._early_bindings.pop(status.job, None)
            return []
        demo_job = self._jobs.get(status.job)
        if demo_job is None:
            self._early_bindings.setdefault(status.job, []).append(status)
            return []
        self.invariants.observe(status)
        self.hyperjobs.on_binding(demo_job, status)
        return self.timeline.on_binding(status, at)

    def _on_job(self, job: Any, at: float, *, is_gone: bool) -> list[TimelineEntry]:
        """Process a job outside the scenario."""
        name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
        if name in self._scenario:
            return []
        if is_gone:
            self._jobs.pop(name, None)
            self.timeline.remove(name)
            return []
        is_new = name not in self._jobs
        self._jobs[name] = demo_job = self._role(job)
        if not is_new:
            return []
        self.timeline.on_submitted(demo_job, at)
        before = self._early_bindings.pop(name, [])
        return [line for status in before for line in self._on_binding(status, at, is_gone=False)]

    def _role(self, job: Any) -> DemoJob:
        owners = job["metadata"].get("ownerReferences", ())
        owner = next((item["name"] for item in owners if item["kind"] == HYPERJOB_KIND), "")
        hyperjob = f"{job['metadata']['namespace']}/{owner}" if owner else ""
        known = self.hyperjobs.all.get(hyperjob)
        is_guest = not owner or (known is not None and known.spec is None)
        return DemoJob(job, hyperjob=hyperjob, is_user_submitted=is_guest)

    def update_usage(self, at: float) -> Sequence[QueueUsage]:
        """Return and record the usage of the queues at time *at*."""
        objects: Objects = {path: list(found.values()) for path, found in self._objects.items()}
        due = compute_fair_shares(objects)
        standings = []
        for queue in self._queues:
            admitted, waiting = self.invariants.count(queue)
            amounts = self.invariants.used(queue), due.fair_share.get(queue, {}), due.limits.get(queue, {})
            standings.append(QueueUsage(queue, *amounts, admitted=admitted, pending=waiting))
        self.usage.record(at, standings)
        return standings
