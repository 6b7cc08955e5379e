"""What became of each job in a simulation: when it waited, when it ran, how often it was evicted."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from controller.engine.reasons import Reason, Refusal
from controller.engine.resources import EMPTY, Resources, add, scale
from controller.engine.workloads import Admission, Workload, WorkloadUid
from controller.simulator.trace import Submission


class JobStage(StrEnum):
    """Where a job stands."""

    WAITING = "Waiting"
    """Also while its admission is being written, and while it leaves after an eviction."""
    RUNNING = "Running"
    FINISHED = "Finished"


@dataclass(slots=True)
class SimulatedJob:
    """One job from its submission on."""

    submission: Submission
    waiting_since: int | None = None
    """``None`` while it does not wait."""
    running_since: int | None = None
    finished_at: int | None = None
    admission: Admission | None = None
    """Under which it runs or ran last."""
    ran_before: bool = False
    """It ran when the simulation began: how long it had waited is not known."""
    evicting: bool = False
    """It was evicted, and its pods are not gone yet."""
    runs: int = 0
    evictions: int = 0
    waited: int = 0
    """Without what it waits now."""
    reason: Refusal | None = None
    """Why it waits, as it was told last; ``None`` while its admission is being written."""
    reason_since: int = 0
    by_reason: dict[Reason | None, int] = field(default_factory=dict)
    """How long it waited for each reason, without the present one."""
    refusals: dict[Reason, Refusal] = field(default_factory=dict)
    """The last refusal of each reason."""
    served: Resources = field(default=EMPTY)
    """What it held, multiplied by the milliseconds for which it ran; without the present run."""

    @property
    def workload(self) -> Workload:
        """Return the job as it was submitted."""
        return self.submission.workload

    @property
    def stage(self) -> JobStage:
        """Return where it stands."""
        if self.finished_at is not None:
            return JobStage.FINISHED
        return JobStage.WAITING if self.running_since is None or self.evicting else JobStage.RUNNING

    def explain(self, reason: Refusal | None, now: int) -> None:
        """Let it wait for *reason* from *now* on."""
        self.by_reason = self.reasons_until(now)
        self.reason, self.reason_since = reason, now
        if reason is not None:
            self.refusals[reason.reason] = reason

    def reasons_until(self, now: int) -> dict[Reason | None, int]:
        """Return how long it waited for each reason until *now*."""
        elapsed = now - self.reason_since
        if self.waiting_since is None or not elapsed:
            return self.by_reason
        code = self.reason.reason if self.reason is not None else None
        return {**self.by_reason, code: self.by_reason.get(code, 0) + elapsed}

    def waited_until(self, now: int) -> int:
        """Return how long it waited in all until *now*."""
        return self.waited + (now - self.waiting_since if self.waiting_since is not None else 0)

    def start(self, admission: Admission, now: int) -> None:
        """Let it run from *now* on."""
        self.explain(None, now)
        if self.waiting_since is not None:
            self.waited += now - self.waiting_since
        self.waiting_since = None
        self.running_since, self.admission = now, admission
        self.runs += 1

    def stop(self, now: int) -> None:
        """End its run at *now*, whether it is done or not."""
        self.served = self.served_until(now)
        self.running_since = None
        self.evicting = False

    def served_until(self, now: int) -> Resources:
        """Return what it held until *now*, multiplied by the milliseconds for which it ran."""
        if self.running_since is None or self.admission is None:
            return self.served
        return add(self.served, scale(self.admission.charge, now - self.running_since))


class SimulatedJobs:
    """All jobs that were submitted so far, in the order in which they came."""

    def __init__(self) -> None:
        self._jobs: dict[WorkloadUid, SimulatedJob] = {}
        self.finished = 0
        self.waiting = 0
        """How many wait to be admitted; those who leave are counted once they are gone."""

    def __iter__(self) -> Iterator[SimulatedJob]:
        return iter(self._jobs.values())

    def __len__(self) -> int:
        return len(self._jobs)

    def __getitem__(self, uid: WorkloadUid) -> SimulatedJob:
        return self._jobs[uid]

    def begin(self, submission: Submission, *, waiting_since: int | None) -> SimulatedJob:
        """Take up a job that was submitted, or that ran before."""
        job = SimulatedJob(submission, waiting_since=waiting_since, ran_before=waiting_since is None)
        job.reason_since = waiting_since or 0
        self._jobs[submission.workload.uid] = job
        self.waiting += waiting_since is not None
        return job

    def start(self, job: SimulatedJob, admission: Admission, now: int) -> None:
        """Let a job that waits run from *now* on."""
        self.waiting -= 1
        job.start(admission, now)

    def finish(self, job: SimulatedJob, now: int) -> None:
        """Let a job be done at *now*."""
        job.stop(now)
        job.finished_at = now
        self.finished += 1

    def wait_again(self, job: SimulatedJob, now: int) -> None:
        """Let a victim whose pods are gone wait again from *now* on."""
        job.stop(now)
        job.waiting_since = job.reason_since = now
        self.waiting += 1
