"""State of the demo as observed through its watches, and usage, fair shares and limits of queues over time."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from controller.api.keys import BATCH_HYPERJOBS, HYPERJOB_KIND, HYPERJOBS, JOBS, RESOURCE_BINDINGS, Resource
from controller.reporting.state_collector import NAMESPACE
from localup.demo.progress import BindingStatus, HyperJobTracker, Timeline, TimelineEntry, parse_binding
from localup.demo.scenario import DemoHyperJob, DemoJob
from localup.karmada.objects import Key, Object, key_of

Amounts = Mapping[str, float]
"""Amounts by resource."""

#: The watched kinds.
WATCHED: Final = (JOBS, RESOURCE_BINDINGS, HYPERJOBS, BATCH_HYPERJOBS)


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """Usage of a queue at one time."""

    queue: str
    used: Amounts = field(default_factory=dict)
    fair_share: Amounts = field(default_factory=dict)
    limit: Amounts = field(default_factory=dict)
    admitted: int = 0
    pending: int = 0


def parse_queue_usage(metrics: str, queues: Sequence[str]) -> list[QueueUsage]:
    """Return the usage of *queues* in the controller's metrics, in the same order; nothing while it does not lead."""
    amounts: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    counts: Counter[tuple[str, str]] = Counter()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            key = family.name.removeprefix(f"{NAMESPACE}_"), sample.labels.get("queue", "")
            if "resource" in sample.labels:
                amounts[key][sample.labels["resource"]] = sample.value
            else:
                counts[key] += int(sample.value)
    return [
        QueueUsage(
            queue,
            amounts["queue_resource_usage", queue],
            amounts["queue_resource_fair_share", queue],
            amounts["queue_resource_limit", queue],
            counts["admitted_active_workloads", queue],
            counts["pending_workloads", queue],
        )
        for queue in (queues if amounts else ())
    ]


@dataclass(slots=True)
class UsageHistory:
    """Usage of all queues over time."""

    moments: list[tuple[float, Sequence[QueueUsage]]] = field(default_factory=list)

    def peak(self, queue: str, resource: str) -> tuple[float, float]:
        """Return the first peak of *resource* in *queue*, and the queue's fair share at that time."""
        rows = [row for _, rows in self.moments for row in rows if row.queue == queue and row.used.get(resource)]
        first = max(rows, key=lambda row: row.used[resource], default=None)
        return (first.used[resource], first.fair_share.get(resource, 0)) if first else (0, 0)

    def contention(
        self, first: str, second: str, resource: str, *, before: float = inf
    ) -> tuple[float, float, float] | None:
        """Return how long both queues had pending jobs and used *resource* until *before*, and their average usage."""
        lasted, used = 0.0, [0.0, 0.0]
        moments = [moment for moment in self.moments if moment[0] < before]
        for (at, rows), (until, _) in pairwise(moments):
            pair = [row for name in (first, second) for row in rows if row.queue == name]
            amounts = [row.used.get(resource, 0) for row in pair]
            if len(pair) == len(used) and all(row.pending for row in pair) and any(amounts):
                lasted += until - at
                used = [sum_ + amount * (until - at) for sum_, amount in zip(used, amounts, strict=True)]
        return (lasted, used[0] / lasted, used[1] / lasted) if lasted else None


class View:
    """Processes changes of objects and tracks the progress of jobs and HyperJobs.

    Jobs outside the scenario are parts of HyperJobs or submitted by a user.
    """

    def __init__(self, jobs: Mapping[str, DemoJob], hyperjobs: Mapping[str, DemoHyperJob]) -> None:
        self._scenario, self._jobs = jobs, dict(jobs)
        self.timeline = Timeline()
        self.hyperjobs = HyperJobTracker(hyperjobs)
        self.usage = UsageHistory()
        self._early_bindings: dict[str, list[BindingStatus]] = {}
        """Binding versions observed before their jobs, which arrive through another watch."""

    def on_change(self, resource: Resource, old: Object | None, new: Object | None, at: float) -> list[TimelineEntry]:
        """Process an object before and after a change and return new timeline entries."""
        item = new or old or {}
        if resource == RESOURCE_BINDINGS:
            return self._on_binding(parse_binding(item), at, is_gone=new is None)
        if resource == JOBS:
            return self._on_job(item, at, is_gone=new is None)
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
