"""Invariants of the demo, verified with its own watch of the API server.

The controller's usage accounting is not used: requests are read from job manifests, not from admission records.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.api.quantity import format_quantity
from controller.engine.state.resources import Resources, total
from localup.demo.binding_status import BindingStatus
from localup.demo.scenario import DemoJob


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper limits of usage: capabilities of queues and allocatable resources of clusters."""

    queues: Mapping[str, Resources]
    clusters: Mapping[str, Resources]


@dataclass(slots=True)
class InvariantChecker:
    """Tracks the latest status of every binding and collects violated invariants."""

    jobs: Mapping[str, DemoJob]
    limits: Limits
    violations: list[str] = field(default_factory=list)
    last: dict[str, BindingStatus] = field(default_factory=dict)
    """Latest binding status by job."""
    versions_observed: int = 0
    """Number of observed binding versions."""
    _admitted: dict[str, int] = field(default_factory=dict)
    """Version at which each binding was first observed admitted."""
    _works: dict[str, int] = field(default_factory=dict)
    """Version at which each binding's first Work was created."""

    def observe(self, status: BindingStatus) -> None:
        """Record the next observed version of a binding and check the invariants."""
        self.versions_observed += 1
        before = self.last.get(status.job)
        self.last[status.job] = status
        demo_job = self.jobs.get(status.job)
        if demo_job is None or demo_job.is_user_submitted:  # users may resize or copy their own jobs
            return
        was_admitted = status.binding in self._admitted
        self.violations.extend(_binding_violations(demo_job, status, is_new=before is None, was_admitted=was_admitted))
        if status.is_admitted:
            self._admitted.setdefault(status.binding, status.version)
        if before is None or _is_charged(before) != _is_charged(status):
            self.violations.extend(self._usage_violations(demo_job.queue, status.clusters))

    def observe_work(self, binding: str, version: int) -> None:
        """Record a Work that was created for *binding*."""
        self._works.setdefault(binding, version)

    def forget(self, job: str) -> None:
        """Remove the binding of *job* after its deletion."""
        self.last.pop(job, None)

    def unadmitted_works(self) -> list[str]:
        """Return violations for Works that were created before their binding was admitted; call it after all events."""
        return [
            f"binding {binding} was sent to a cluster before it was admitted"
            for binding, version in sorted(self._works.items())
            if self._admitted.get(binding, version) >= version
        ]

    def used(self, queue: str) -> Resources:
        """Return the total requests of the admitted, unfinished jobs of *queue*."""
        return total(demo_job.requests for demo_job, _ in self._admitted_jobs() if demo_job.queue == queue)

    def count(self, queue: str) -> tuple[int, int]:
        """Return the numbers of admitted, unfinished jobs and of suspended jobs of *queue*."""
        mine = [each for job, each in self.last.items() if job in self.jobs and self.jobs[job].queue == queue]
        return sum(_is_charged(item) for item in mine), sum(item.suspended for item in mine)

    def _admitted_jobs(self) -> Iterable[tuple[DemoJob, BindingStatus]]:
        return [(self.jobs[job], each) for job, each in self.last.items() if job in self.jobs and _is_charged(each)]

    def _usage_violations(self, queue: str, clusters: Iterable[str]) -> list[str]:
        found = [*_limit_violations(f"queue {queue}", self.used(queue), self.limits.queues.get(queue, {}))]
        for cluster in clusters:
            here = total(demo_job.requests for demo_job, each in self._admitted_jobs() if cluster in each.clusters)
            found += _limit_violations(f"cluster {cluster}", here, self.limits.clusters.get(cluster, {}))
        return found


def _is_charged(status: BindingStatus) -> bool:
    return status.is_admitted and not status.is_over


def _binding_violations(demo_job: DemoJob, status: BindingStatus, *, is_new: bool, was_admitted: bool) -> list[str]:
    """Return the violations visible in a single binding version.

    After an eviction the binding still shows the last reported phase, so an earlier admission counts.
    """
    name = demo_job.name
    wrongs = {
        f"{name} was stored without being suspended": is_new and not status.suspended,
        f"{name} was resumed without an admission record": not status.suspended and not status.has_record,
        f"{name} has clusters although it is suspended": status.suspended and bool(status.clusters),
        f"{name} runs although it was not admitted": status.has_started and not (status.is_admitted or was_admitted),
        f"{name} was assigned {len(status.clusters)} clusters": len(status.clusters) > 1,
        f"{name} started {status.pods} of the {demo_job.gang} pods of its gang": status.has_started
        and status.pods < demo_job.gang,
        f"{name} was admitted although it is inadmissible": demo_job.expected_reason is not None and status.is_admitted,
    }
    return [text for text, is_so in wrongs.items() if is_so]


def _limit_violations(name: str, used: Resources, limit: Resources) -> list[str]:
    return [
        f"{name} uses {format_quantity(resource, used[resource])} {resource}, limit {format_quantity(resource, most)}"
        for resource, most in limit.items()
        if used.get(resource, 0) > most
    ]
