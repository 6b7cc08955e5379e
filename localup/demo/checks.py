"""Checks the demo: invariants at each observed version of a binding, and the result at the end.

The controller's usage accounting is not used: requests are read from job manifests, not from admission records.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.api.quantity import format_quantity
from controller.engine.state.resources import Resources, total
from localup.demo.progress import BindingStatus, HyperJobProgress, JobProgress, JobStage
from localup.demo.scenario import DemoJob, Limits


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


_STUCK: Final[dict[JobStage, tuple[str, str]]] = {
    JobStage.SUBMITTED: ("has no binding", "karmada"),
    JobStage.SUSPENDED: ("is suspended, and the controller reports no pending reason", "controller"),
    JobStage.ADMITTED: ("was admitted to {cluster} but does not start", "karmada"),
    JobStage.RUNNING: ("runs on {cluster} but does not end", "karmada"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A deviation from the expected behaviour and the process whose log may explain it."""

    text: str
    log_name: str


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Result of a run; it is successful without problems."""

    problems: Sequence[Problem]
    ran: int
    inadmissible: Sequence[JobProgress]
    hyperjobs: Sequence[HyperJobProgress] = ()
    """HyperJobs that completed as expected."""

    @property
    def logs_to_check(self) -> list[str]:
        """Return the processes whose logs may explain the problems, most problems first."""
        counted = [problem.log_name for problem in self.problems]
        return sorted(set(counted), key=lambda name: (-counted.count(name), name))


def evaluate(
    jobs: Iterable[JobProgress], hyperjobs: Iterable[HyperJobProgress], violations: Iterable[str]
) -> DemoResult:
    """Return the result from the progress of all jobs and HyperJobs and from the observed violations."""
    known = [progress for progress in jobs if not progress.spec.is_user_submitted]
    expected = [hyperjob for hyperjob in hyperjobs if hyperjob.spec is not None]
    seen = [
        Problem(text, "webhook" if "stored without being suspended" in text else "controller")
        for text in dict.fromkeys(violations)
    ]
    stuck = [_job_problem(progress) for progress in known if not progress.is_settled]
    astray = [_hyperjob_problem(hyperjob) for hyperjob in expected if not hyperjob.is_settled]
    return DemoResult(
        problems=[*seen, *stuck, *astray],
        ran=sum(progress.stage is JobStage.FINISHED and not progress.spec.hyperjob for progress in known),
        inadmissible=[
            progress for progress in known if progress.is_settled and progress.spec.expected_reason is not None
        ],
        hyperjobs=[hyperjob for hyperjob in expected if hyperjob.is_settled],
    )


def _job_problem(progress: JobProgress) -> Problem:
    """Return why a job did not reach its expected final state."""
    name = progress.spec.name
    if progress.stage is JobStage.FINISHED and progress.spec.reclaims:
        return Problem(f"{name} ran without waiting for evictions", "controller")
    if progress.stage is JobStage.FINISHED:
        return Problem(f"{name} ran although it should stay pending as {progress.spec.expected_reason}", "controller")
    if progress.stage is JobStage.PENDING and progress.pending_reason:
        expected = f" instead of {progress.spec.expected_reason}" if progress.spec.expected_reason else ""
        return Problem(
            f"{name} is pending as {progress.pending_reason.reason}{expected}: {progress.pending_reason.message}",
            "controller",
        )
    text, suspect = _STUCK[progress.stage]
    return Problem(f"{name} {text.format(cluster=progress.cluster or 'no cluster')}", suspect)


def _hyperjob_problem(hyperjob: HyperJobProgress) -> Problem:
    """Return why a HyperJob did not complete as expected."""
    if hyperjob.spec is not None and not hyperjob.has_been_pending:
        waited = ", ".join(hyperjob.reasons) or "none"
        return Problem(
            f"{hyperjob.name} was not pending as {hyperjob.spec.expected_reason}; observed reasons: {waited}",
            "controller",
        )
    text = (
        f"{hyperjob.name} is {hyperjob.stage} with {len(hyperjob.split)} parts, {len(hyperjob.plans)} of them admitted"
    )
    return Problem(f"{text}: {hyperjob.outcome or hyperjob.message}", "controller")
