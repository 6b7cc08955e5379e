"""Tracks waiting times, runs and evictions of the simulated jobs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from controller.engine.reasons import EvictionReason, Reason, Refusal
from controller.engine.state.clusters import Assignment
from controller.engine.state.resources import EMPTY, Resources, add, scale
from controller.engine.state.workloads import Admission, Workload, WorkloadUid
from controller.simulator.trace import Submission


class JobStage(StrEnum):
    """Stage of a job."""

    WAITING = "Waiting"
    """Includes jobs with an admission being written, and jobs being evicted."""
    RUNNING = "Running"
    FINISHED = "Finished"


@dataclass(slots=True)
class SimulatedJob:
    """Progress of one submitted job."""

    submission: Submission
    waiting_since: int | None = None
    """``None`` while it is not waiting."""
    running_since: int | None = None
    finished_at: int | None = None
    admission: Admission | None = None
    """Admission of the current or last run."""
    ran_before: bool = False
    """True if it was running at the start, so that its waiting time is unknown."""
    evicting: bool = False
    """True while its pods terminate after an eviction."""
    runs: int = 0
    evictions: int = 0
    waited: int = 0
    """Total waiting time in milliseconds, without the current wait."""
    reason: Refusal | None = None
    """Current pending reason; ``None`` while its admission is being written."""
    reason_since: int = 0
    by_reason: dict[Reason | None, int] = field(default_factory=dict)
    """Waiting time by reason, without the current wait."""
    refusals: dict[Reason, Refusal] = field(default_factory=dict)
    """The last refusal of each reason."""
    served: Resources = field(default=EMPTY)
    """Resource-time of its runs (amount times milliseconds), without the current run."""

    @property
    def workload(self) -> Workload:
        """Return the job as it was submitted."""
        return self.submission.workload

    @property
    def stage(self) -> JobStage:
        """Return the current stage."""
        if self.finished_at is not None:
            return JobStage.FINISHED
        return JobStage.WAITING if self.running_since is None or self.evicting else JobStage.RUNNING

    def set_reason(self, reason: Refusal | None, now: int) -> None:
        """Set the pending reason from *now* on."""
        self.by_reason = self.reasons_until(now)
        self.reason, self.reason_since = reason, now
        if reason is not None:
            self.refusals[reason.reason] = reason

    def reasons_until(self, now: int) -> dict[Reason | None, int]:
        """Return the waiting time by reason until *now*."""
        elapsed = now - self.reason_since
        if self.waiting_since is None or not elapsed:
            return self.by_reason
        code = self.reason.reason if self.reason is not None else None
        return {**self.by_reason, code: self.by_reason.get(code, 0) + elapsed}

    def waited_until(self, now: int) -> int:
        """Return the total waiting time until *now*."""
        return self.waited + (now - self.waiting_since if self.waiting_since is not None else 0)

    def start(self, admission: Admission, now: int) -> None:
        """Start a run at *now*."""
        self.set_reason(None, now)
        if self.waiting_since is not None:
            self.waited += now - self.waiting_since
        self.waiting_since = None
        self.running_since, self.admission = now, admission
        self.runs += 1

    def stop(self, now: int) -> None:
        """End the current run at *now*, finished or not."""
        self.served = self.served_until(now)
        self.running_since = None
        self.evicting = False

    def served_until(self, now: int) -> Resources:
        """Return the resource-time of its runs until *now*."""
        if self.running_since is None or self.admission is None:
            return self.served
        return add(self.served, scale(self.admission.charge, now - self.running_since))


class SimulatedJobs:
    """The jobs submitted so far, in the order of submission."""

    def __init__(self) -> None:
        self._jobs: dict[WorkloadUid, SimulatedJob] = {}
        self.finished = 0
        self.waiting = 0
        """Number of pending jobs; a job being evicted counts after its pods have terminated."""

    def __iter__(self) -> Iterator[SimulatedJob]:
        return iter(self._jobs.values())

    def __len__(self) -> int:
        return len(self._jobs)

    def __getitem__(self, uid: WorkloadUid) -> SimulatedJob:
        return self._jobs[uid]

    def begin(self, submission: Submission, *, waiting_since: int | None) -> SimulatedJob:
        """Add a job that is submitted, or that runs at the start."""
        job = SimulatedJob(submission, waiting_since=waiting_since, ran_before=waiting_since is None)
        job.reason_since = waiting_since or 0
        self._jobs[submission.workload.uid] = job
        self.waiting += waiting_since is not None
        return job

    def start(self, job: SimulatedJob, admission: Admission, now: int) -> None:
        """Start a waiting job at *now*."""
        self.waiting -= 1
        job.start(admission, now)

    def finish(self, job: SimulatedJob, now: int) -> None:
        """Finish a job at *now*."""
        job.stop(now)
        job.finished_at = now
        self.finished += 1

    def wait_again(self, job: SimulatedJob, now: int) -> None:
        """Make a job waiting again at *now*, after its pods have terminated."""
        job.stop(now)
        job.waiting_since = job.reason_since = now
        self.waiting += 1


class JobAction(StrEnum):
    """Events in the life of a job."""

    SUBMIT = "Submit"
    ADMIT = "Admit"
    """The write of its admission is complete."""
    EVICT = "Evict"
    """The write of its eviction is complete; its pods run on for the grace period."""
    WAIT = "Wait"
    """It is pending with a new reason."""
    FINISH = "Finish"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One event, *at* milliseconds after the start."""

    at: int
    action: JobAction
    workload: Workload
    clusters: tuple[Assignment, ...] = ()
    cause: Refusal | EvictionReason | None = None
    """Why it is pending or evicted."""
