"""Each job's way from being paused to being over, told line by line. Pure: times are arguments."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controller.engine.reasons import Reason
from controller.engine.resources import PODS
from localup.demo.binding_status import BindingStatus
from localup.demo.scenario import DemoJob
from localup.karmada.pods import quantities


class JobStage(StrEnum):
    """How far a job is, as it is printed."""

    SUBMITTED = "submitted"
    SPLIT = "split"
    PAUSED = "paused"
    WAITING = "waiting"
    EVICTED = "evicted"
    ADMITTED = "admitted"
    RUNNING = "running"
    FINISHED = "finished"


_ORDER = {stage: place for place, stage in enumerate(JobStage)}
_IN_QUEUE = frozenset({JobStage.PAUSED, JobStage.EVICTED})


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One step of a job, at so many seconds after the start."""

    at: float
    job: str
    stage: JobStage
    words: str


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Why a job waits, as the controller says it."""

    job: str
    reason: str
    message: str


@dataclass(slots=True)
class JobProgress:
    """How far one job has come, and when it took each step first."""

    role: DemoJob
    stage: JobStage = JobStage.SUBMITTED
    times: dict[JobStage, float] = field(default_factory=dict)
    complaint: PendingReason | None = None
    reasons: set[str] = field(default_factory=set)
    """All that it ever waited for."""
    evictions: int = 0
    cluster: str = ""
    outcome: str = ""

    @property
    def waited(self) -> float | None:
        """How long it was paused, ``None`` while it still is."""
        return self._between(JobStage.PAUSED, JobStage.ADMITTED)

    @property
    def ran(self) -> float | None:
        """How long it ran, ``None`` until it is over."""
        return self._between(JobStage.RUNNING, JobStage.FINISHED)

    @property
    def is_settled(self) -> bool:
        """Say whether it has come where it is to end: to its end, or to the wait that is expected of it."""
        if self.role.is_guest:
            return True
        if self.role.forever is None:
            return self.stage is JobStage.FINISHED and (
                Reason.PREEMPTION_IN_PROGRESS in self.reasons or not self.role.reclaims
            )
        return (
            self.stage is JobStage.WAITING and self.complaint is not None and self.complaint.reason == self.role.forever
        )

    def _between(self, first: JobStage, last: JobStage) -> float | None:
        if first not in self.times or last not in self.times:
            return None
        return self.times[last] - self.times[first]


class Timeline:
    """The ways of all jobs; what is told returns the lines that are new."""

    def __init__(self) -> None:
        self.ways: dict[str, JobProgress] = {}

    def submitted(self, role: DemoJob, at: float) -> None:
        """Take a job as submitted; nothing is said of it before the webhook has paused it."""
        self.ways[role.name] = JobProgress(role, times={JobStage.SUBMITTED: at})

    def withdrawn(self, job: str) -> None:
        """Forget a job that is gone before its end, or of which nothing is expected."""
        way = self.ways.get(job)
        if way is not None and (way.role.is_guest or way.stage is not JobStage.FINISHED):
            del self.ways[job]

    def saw(self, sighting: BindingStatus, at: float) -> list[TimelineEntry]:
        """Take a sighting, and tell the steps that it shows, skipped ones included."""
        way = self.ways.get(sighting.job)
        if way is None:
            return []
        way.cluster = ", ".join(sighting.clusters)
        way.outcome = sighting.phase if sighting.is_over else ""
        if sighting.paused and not sighting.is_over and _ORDER[way.stage] >= _ORDER[JobStage.ADMITTED]:
            return self._evicted(way, at)
        reached = _stage_of(sighting)
        words = _messages(way, sighting, at)
        lines = [
            self._step(way, at, stage, words=words[stage])
            for stage in words
            if _ORDER[way.stage] < _ORDER[stage] <= _ORDER[reached]
        ]
        return lines if way.stage not in _IN_QUEUE else [*lines, *self._waits(way, at)]

    def heard(self, complaint: PendingReason, at: float) -> list[TimelineEntry]:
        """Take the controller's word, and tell it when it is about somebody who waits."""
        way = self.ways.get(complaint.job)
        if way is None:
            return []
        way.reasons.add(complaint.reason)
        is_known = way.complaint == complaint and way.stage is JobStage.WAITING
        if is_known or _ORDER[way.stage] >= _ORDER[JobStage.ADMITTED]:
            return []
        way.complaint = complaint
        # The log may be faster than the watch: then it is told with the pause.
        return [] if way.stage is JobStage.SUBMITTED else self._waits(way, at)

    @property
    def is_over(self) -> bool:
        """Say whether every job has come where it is to end."""
        return all(way.is_settled for way in self.ways.values())

    def is_running(self, jobs: Iterable[str]) -> bool:
        """Say whether all of these run."""
        return all(self.ways[job].stage is JobStage.RUNNING for job in jobs)

    @property
    def is_quiet(self) -> bool:
        """Say the same of all but the parts of HyperJobs."""
        return all(way.is_settled for way in self.ways.values() if not way.role.family)

    def _evicted(self, way: JobProgress, at: float) -> list[TimelineEntry]:
        """Begin anew with one that had to go; how long it waits and runs counts from then on."""
        way.evictions += 1
        way.complaint = None
        for stage in (JobStage.ADMITTED, JobStage.RUNNING):
            way.times.pop(stage, None)
        return [self._step(way, at, JobStage.EVICTED, words="it has to go, and waits again with the age that it had")]

    def _waits(self, way: JobProgress, at: float) -> list[TimelineEntry]:
        if way.complaint is None:
            return []
        return [self._step(way, at, JobStage.WAITING, words=f"{way.complaint.reason}: {way.complaint.message}")]

    def _step(self, way: JobProgress, at: float, stage: JobStage, *, words: str) -> TimelineEntry:
        way.stage = stage
        way.times.setdefault(stage, at)
        return TimelineEntry(at, way.role.name, stage, words)


def _stage_of(sighting: BindingStatus) -> JobStage:
    if sighting.is_over:
        return JobStage.FINISHED
    if sighting.paused:  # what is said of one that had to go is old
        return JobStage.PAUSED
    if sighting.has_started:
        return JobStage.RUNNING
    return JobStage.ADMITTED if sighting.is_admitted else JobStage.PAUSED


def _messages(way: JobProgress, sighting: BindingStatus, at: float) -> Mapping[JobStage, str]:
    """Return what is said at each step, in their order."""
    waited = at - way.times.get(JobStage.PAUSED, at)
    ran = at - way.times.get(JobStage.RUNNING, at)
    return {
        JobStage.PAUSED: f"queue {way.role.queue}: {describe_requests(way.role)}",
        JobStage.ADMITTED: f"to {way.cluster} after {waited:.1f} s",
        JobStage.RUNNING: f"on {way.cluster}, {sighting.pods} pods",
        JobStage.FINISHED: f"{sighting.phase} after {ran:.1f} s",
    }


def describe_requests(role: DemoJob) -> str:
    """Return what a job asks for, in words; its pods only where that is all."""
    amounts = quantities(role.demand)
    telling = {resource: amount for resource, amount in amounts.items() if resource != PODS} or amounts
    return ", ".join(f"{amount} {resource}" for resource, amount in telling.items())
