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
    Resource,
)
from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.resources import EMPTY, Resources
from controller.kube.collection import Collection
from localup.demo.progress import BindingStatus, HyperJobTracker, JobStage, Timeline, TimelineEntry, parse_binding
from localup.demo.scenario import DemoHyperJob, DemoJob, has_summary
from localup.karmada.objects import Key, Object, key_of

Amounts = Mapping[str, Fraction | int]
"""Amounts in base units by resource."""

#: The watched kinds.
WATCHED: Final = (QUEUES, CLUSTERS, PRIORITY_CLASSES, JOBS, RESOURCE_BINDINGS, HYPERJOBS, BATCH_HYPERJOBS)


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

    def peak(self, queue: str, resource: str) -> Peak:
        """Return the first peak of *resource* in *queue*."""
        rows = [row for _, rows in self.moments for row in rows if row.queue == queue and row.used.get(resource)]
        first = max(rows, key=lambda row: row.used[resource], default=None)
        return Peak(first.used[resource], first.fair_share.get(resource, 0)) if first else Peak()

    def contention(
        self, first: str, second: str, resource: str, *, before: float = inf
    ) -> tuple[float, Fraction, Fraction] | None:
        """Return how long both queues had pending jobs while using *resource*, and their average usage.

        Only times before *before* count. Returns ``None`` if both were never pending at once.
        """
        lasted, used = 0.0, [0.0, 0.0]
        moments = [moment for moment in self.moments if moment[0] < before]
        for (at, rows), (until, _) in pairwise(moments):
            pair = [row for name in (first, second) for row in rows if row.queue == name]
            amounts = [row.used.get(resource, 0) for row in pair]
            if len(pair) == len(used) and all(row.pending for row in pair) and any(amounts):
                lasted += until - at
                used = [sum_ + amount * (until - at) for sum_, amount in zip(used, amounts, strict=True)]
        return (lasted, Fraction(used[0] / lasted), Fraction(used[1] / lasted)) if lasted else None


class View:
    """Processes changes of objects and tracks the progress of jobs, HyperJobs and queues.

    Jobs outside the scenario are parts of HyperJobs or submitted by a user.

    Args:
        jobs: The jobs of the scenario by name.
        hyperjobs: The HyperJobs of the scenario by name.
        queues: The queues to show, in this order.
    """

    def __init__(
        self, jobs: Mapping[str, DemoJob], hyperjobs: Mapping[str, DemoHyperJob], queues: Sequence[str]
    ) -> None:
        self._scenario, self._jobs = jobs, dict(jobs)
        self.timeline = Timeline()
        self.hyperjobs = HyperJobTracker(hyperjobs)
        self.usage = UsageHistory()
        self._queues = queues
        self._objects: dict[Resource, dict[Key, Object]] = {resource: {} for resource in WATCHED}
        self._early_bindings: dict[str, list[BindingStatus]] = {}
        """Binding versions observed before their jobs, which arrive through another watch."""

    def on_change(self, resource: Resource, old: Object | None, new: Object | None, at: float) -> list[TimelineEntry]:
        """Process an object before and after a change and return new timeline entries."""
        item = new or old or {}
        self._objects[resource].pop(key_of(item), None)
        if new is not None:
            self._objects[resource][key_of(new)] = new
        if resource == RESOURCE_BINDINGS:
            return self._on_binding(parse_binding(item), at, is_gone=new is None)
        if resource == JOBS:
            return self._on_job(item, at, is_gone=new is None)
        if resource not in {HYPERJOBS, BATCH_HYPERJOBS}:
            return []
        if new is not None:
            return self.hyperjobs.on_hyperjob(new, at)
        self.hyperjobs.forget(str(key_of(item)))
        return []

    @property
    def is_over(self) -> bool:
        """Whether all jobs and HyperJobs have reached their expected final state."""
        return self.timeline.is_over and all(hyperjob.is_settled for hyperjob in self.hyperjobs.all.values())

    @property
    def are_jobs_settled(self) -> bool:
        """Whether only HyperJobs are unfinished, and each was pending for its expected reason."""
        have_been_pending = all(progress.has_been_pending for progress in self.hyperjobs.all.values())
        return self.timeline.are_jobs_settled and have_been_pending

    def have_summaries(self, clusters: Iterable[str]) -> bool:
        """Return whether these member clusters exist and report a resource summary."""
        return all(has_summary(self._objects[CLUSTERS].get(Key("", name), {})) for name in clusters)

    def _on_binding(self, status: BindingStatus, at: float, *, is_gone: bool) -> list[TimelineEntry]:
        if is_gone:
            self._early_bindings.pop(status.job, None)
            return []
        demo_job = self._jobs.get(status.job)
        if demo_job is None:
            self._early_bindings.setdefault(status.job, []).append(status)
            return []
        self.hyperjobs.on_binding(demo_job, status)
        return self.timeline.on_binding(status, at)

    def _on_job(self, job: Object, at: float, *, is_gone: bool) -> list[TimelineEntry]:
        """Process a job outside the scenario."""
        name = str(key_of(job))
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

    def _role(self, job: Object) -> DemoJob:
        owners = job["metadata"].get("ownerReferences", ())
        owner = next((item["name"] for item in owners if item["kind"] == HYPERJOB_KIND), "")
        hyperjob = str(Key(key_of(job).namespace, owner)) if owner else ""
        known = self.hyperjobs.all.get(hyperjob)
        is_guest = not owner or (known is not None and known.spec is None)
        return DemoJob(dict(job), hyperjob=hyperjob, is_user_submitted=is_guest)

    def update_usage(self, at: float) -> Sequence[QueueUsage]:
        """Return and record the usage of the queues at time *at*."""
        store, state, now = Store(), Engine(), time.time_ns() // 1_000_000
        self._fill(store.queues, QUEUES)
        self._fill(store.clusters, CLUSTERS)
        self._fill(store.priority_classes, PRIORITY_CLASSES)
        self._fill(store.jobs, JOBS)
        self._fill(store.bindings, RESOURCE_BINDINGS)
        store.sync_to(state, now)
        used = dict(state.current_usage)
        state.plan(now)
        shares = state.queue_shares
        due, limits = (shares.fair_shares, shares.quota.limits) if shares else ({}, {})
        rows = []
        for queue in self._queues:
            name = QueueName(queue)
            stages = [progress.stage for progress in self.timeline.jobs.values() if progress.spec.queue == queue]
            admitted = sum(stage in {JobStage.ADMITTED, JobStage.RUNNING} for stage in stages)
            pending = sum(stage in {JobStage.SUSPENDED, JobStage.PENDING, JobStage.EVICTED} for stage in stages)
            limit = limits[name].limit if name in limits else {}
            amounts = (used.get(name, EMPTY), due.get(name, {}), limit)
            rows.append(QueueUsage(queue, *amounts, admitted=admitted, pending=pending))
        self.usage.moments.append((at, rows))
        return rows

    def _fill(self, sink: Collection[Any], resource: Resource) -> None:
        items = map(_without_external_usage, self._objects[resource].values())
        sink.replace([sink.decode(json.dumps(item).encode()) for item in items])


def _without_external_usage(item: Any) -> Any:
    """Return a cluster with only its allocatable resources; other objects are unchanged.

    After jobs end, a summary briefly still contains their usage, which a new engine state treats as external usage.
    In the demo only its own jobs run.
    """
    status = item.get("status") or {}
    if "resourceSummary" not in status:
        return item
    allocatable = {"allocatable": status["resourceSummary"].get("allocatable", {})}
    return {**item, "status": {**status, "resourceSummary": allocatable}}
