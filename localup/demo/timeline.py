"""Progress of each job from suspension to its end, as timeline entries."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controller.engine.reasons import Reason
from controller.engine.state.resources import PODS
from localup.demo.binding_status import BindingStatus
from localup.demo.scenario import DemoJob
from localup.karmada.pods import quantities


class JobStage(StrEnum):
    """Stage of a job as printed."""

    SUBMITTED = "submitted"
    SPLIT = "split"
    SUSPENDED = "suspended"
    PENDING = "pending"
    EVICTED = "evicted"
    ADMITTED = "admitted"
    RUNNING = "running"
    FINISHED = "finished"


_ORDER = {stage: place for place, stage in enumerate(JobStage)}
_IN_QUEUE = frozenset({JobStage.SUSPENDED, JobStage.EVICTED})


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A stage that a job reached, in seconds after the start."""

    at: float
    job: str
    stage: JobStage
    text: str


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Pending reason of a job as reported by the controller."""

    job: str
    reason: str
    message: str


@dataclass(slots=True)
class JobProgress:
    """Current stage of a job and the time at which it first reached each stage."""

    spec: DemoJob
    stage: JobStage = JobStage.SUBMITTED
    times: dict[JobStage, float] = field(default_factory=dict)
    pending_reason: PendingReason | None = None
    reasons: set[str] = field(default_factory=set)
    """All pending reasons so far."""
    evictions: int = 0
    cluster: str = ""
    outcome: str = ""

    @property
    def waited(self) -> float | None:
        """Return the seconds of suspension, ``None`` while it is suspended."""
        return self._between(JobStage.SUSPENDED, JobStage.ADMITTED)

    @property
    def ran(self) -> float | None:
        """Return the seconds it ran, ``None`` until it has finished."""
        return self._between(JobStage.RUNNING, JobStage.FINISHED)

    @property
    def is_settled(self) -> bool:
        """Return whether the job has finished, or is pending for the expected reason."""
        if self.spec.is_user_submitted:
            return True
        if self.spec.expected_reason is None:
            return self.stage is JobStage.FINISHED and (
                Reason.PREEMPTION_IN_PROGRESS in self.reasons or not self.spec.reclaims
            )
        return (
            self.stage is JobStage.PENDING
            and self.pending_reason is not None
            and self.pending_reason.reason == self.spec.expected_reason
        )

    def _between(self, first: JobStage, last: JobStage) -> float | None:
        if first not in self.times or last not in self.times:
            return None
        return self.times[last] - self.times[first]


class Timeline:
    """Progress of all jobs; every update returns the new timeline entries."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobProgress] = {}

    def on_submitted(self, demo_job: DemoJob, at: float) -> None:
        """Add a submitted job; it gets an entry once the webhook has suspended it."""
        self.jobs[demo_job.name] = JobProgress(demo_job, times={JobStage.SUBMITTED: at})

    def remove(self, job: str) -> None:
        """Remove a deleted job unless it has finished and is part of the scenario."""
        progress = self.jobs.get(job)
        if progress is not None and (progress.spec.is_user_submitted or progress.stage is not JobStage.FINISHED):
            del self.jobs[job]

    def on_binding(self, status: BindingStatus, at: float) -> list[TimelineEntry]:
        """Process an observed binding and return entries for all stages reached, including skipped ones."""
        progress = self.jobs.get(status.job)
        if progress is None:
            return []
        progress.cluster = ", ".join(status.clusters)
        progress.outcome = status.phase if status.is_over else ""
        if status.suspended and not status.is_over and _ORDER[progress.stage] >= _ORDER[JobStage.ADMITTED]:
            return self._evicted(progress, at)
        reached = _stage_of(status)
        text = _messages(progress, status, at)
        lines = [
            self._reach(progress, at, stage, text=text[stage])
            for stage in text
            if _ORDER[progress.stage] < _ORDER[stage] <= _ORDER[reached]
        ]
        return lines if progress.stage not in _IN_QUEUE else [*lines, *self._pending_entry(progress, at)]

    def on_pending_reason(self, pending_reason: PendingReason, at: float) -> list[TimelineEntry]:
        """Process a pending reason from the log and return an entry if the job is pending."""
        progress = self.jobs.get(pending_reason.job)
        if progress is None:
            return []
        progress.reasons.add(pending_reason.reason)
        is_known = progress.pending_reason == pending_reason and progress.stage is JobStage.PENDING
        if is_known or _ORDER[progress.stage] >= _ORDER[JobStage.ADMITTED]:
            return []
        progress.pending_reason = pending_reason
        # The log may arrive before the watch event; the entry then follows the suspension.
        return [] if progress.stage is JobStage.SUBMITTED else self._pending_entry(progress, at)

    @property
    def is_over(self) -> bool:
        """Return whether every job has reached its expected final state."""
        return all(progress.is_settled for progress in self.jobs.values())

    def is_running(self, jobs: Iterable[str]) -> bool:
        """Return whether all *jobs* run."""
        return all(self.jobs[job].stage is JobStage.RUNNING for job in jobs)

    @property
    def are_jobs_settled(self) -> bool:
        """Return whether all jobs except HyperJob parts have reached their expected final state."""
        return all(progress.is_settled for progress in self.jobs.values() if not progress.spec.hyperjob)

    def _evicted(self, progress: JobProgress, at: float) -> list[TimelineEntry]:
        """Reset the times of an evicted job; waiting and run times count from now on."""
        progress.evictions += 1
        progress.pending_reason = None
        for stage in (JobStage.ADMITTED, JobStage.RUNNING):
            progress.times.pop(stage, None)
        return [self._reach(progress, at, JobStage.EVICTED, text="evicted; it is pending again and keeps its age")]

    def _pending_entry(self, progress: JobProgress, at: float) -> list[TimelineEntry]:
        if progress.pending_reason is None:
            return []
        return [
            self._reach(
                progress,
                at,
                JobStage.PENDING,
                text=f"{progress.pending_reason.reason}: {progress.pending_reason.message}",
            )
        ]

    def _reach(self, progress: JobProgress, at: float, stage: JobStage, *, text: str) -> TimelineEntry:
        progress.stage = stage
        progress.times.setdefault(stage, at)
        return TimelineEntry(at, progress.spec.name, stage, text)


def _stage_of(status: BindingStatus) -> JobStage:
    if status.is_over:
        return JobStage.FINISHED
    if status.suspended:  # the reported phase of an evicted job is stale
        return JobStage.SUSPENDED
    if status.has_started:
        return JobStage.RUNNING
    return JobStage.ADMITTED if status.is_admitted else JobStage.SUSPENDED


def _messages(progress: JobProgress, status: BindingStatus, at: float) -> Mapping[JobStage, str]:
    """Return the text of each stage in order."""
    waited = at - progress.times.get(JobStage.SUSPENDED, at)
    ran = at - progress.times.get(JobStage.RUNNING, at)
    return {
        JobStage.SUSPENDED: f"queue {progress.spec.queue}: {describe_requests(progress.spec)}",
        JobStage.ADMITTED: f"to {progress.cluster} after {waited:.1f} s",
        JobStage.RUNNING: f"on {progress.cluster}, {status.pods} pods",
        JobStage.FINISHED: f"{status.phase} after {ran:.1f} s",
    }


def describe_requests(demo_job: DemoJob) -> str:
    """Return a job's requests as text; pods are included only if nothing else is requested."""
    amounts = quantities(demo_job.requests)
    shown = {resource: amount for resource, amount in amounts.items() if resource != PODS} or amounts
    return ", ".join(f"{amount} {resource}" for resource, amount in shown.items())
