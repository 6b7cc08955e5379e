"""Progress of each job and HyperJob of the demo, as timeline entries.

The status of a job is read from its binding only, because one watch delivers the binding's versions in order; pending
reasons come from the controller's log.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final

from controller.api.keys import ADMISSION_ANNOTATION
from controller.engine.reasons import Reason
from controller.engine.state.resources import PODS
from localup.demo.scenario import DemoHyperJob, DemoJob
from localup.karmada.workloads import quantities

_FINAL: Final = frozenset({"Completed", "Failed", "Terminated"})


class JobStage(StrEnum):
    """Stage of a job as printed, in order."""

    SUBMITTED = "submitted"
    SPLIT = "split"
    SUSPENDED = "suspended"
    PENDING = "pending"
    EVICTED = "evicted"
    ADMITTED = "admitted"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class BindingStatus:
    """State of a job's binding at one resource version.

    *phase* is empty before the first report of its cluster; *pods* run, or ran if the job has finished; *plan* is that
    which admitted it together with other workloads.
    """

    job: str
    suspended: bool
    clusters: tuple[str, ...]
    phase: str
    pods: int
    plan: str = ""

    @property
    def stage(self) -> JobStage:
        """Stage of the job; the reported phase of a suspended job is stale unless it has finished."""
        if self.phase in _FINAL:
            return JobStage.FINISHED
        if self.suspended or not (self.clusters or self.phase == "Running"):
            return JobStage.SUSPENDED
        return JobStage.RUNNING if self.phase == "Running" else JobStage.ADMITTED


def parse_binding(binding: Any) -> BindingStatus:
    """Return the status of a ResourceBinding; each job of the demo has at most one cluster."""
    metadata, spec = binding["metadata"], binding["spec"]
    items = binding.get("status", {}).get("aggregatedStatus") or [{}]
    status = items[0].get("status") or {}
    record = json.loads(metadata.get("annotations", {}).get(ADMISSION_ANNOTATION, "{}"))
    return BindingStatus(
        job=f"{metadata['namespace']}/{spec['resource']['name']}",
        suspended=bool(spec.get("suspension", {}).get("scheduling")),
        clusters=tuple(cluster["name"] for cluster in spec.get("clusters") or ()),
        phase=status.get("state", {}).get("phase", ""),
        pods=sum(status.get(part, 0) for part in ("running", "succeeded", "failed")),
        plan=record.get("planID", "") if record.get("uid") == metadata["uid"] else "",
    )


_ORDER: Final = {stage: place for place, stage in enumerate(JobStage)}
_IN_QUEUE: Final = frozenset({JobStage.SUSPENDED, JobStage.EVICTED})


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

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


@dataclass(slots=True, kw_only=True)
class Progress:
    """Current stage, and the time at which each stage was first reached."""

    waits_from: ClassVar = JobStage.SUSPENDED
    runs_from: ClassVar = JobStage.RUNNING
    stage: JobStage = JobStage.SUBMITTED
    times: dict[JobStage, float] = field(default_factory=dict)

    def reach(self, stage: JobStage, at: float) -> JobStage:
        """Enter a stage and return it."""
        self.stage = stage
        self.times.setdefault(stage, at)
        return stage

    @property
    def waited(self) -> float | None:
        """Seconds until it was admitted, ``None`` before."""
        return self._between(self.waits_from, JobStage.ADMITTED)

    @property
    def ran(self) -> float | None:
        """Seconds it ran, ``None`` until it has finished."""
        return self._between(self.runs_from, JobStage.FINISHED)

    def _between(self, first: JobStage, last: JobStage) -> float | None:
        return self.times[last] - self.times[first] if first in self.times and last in self.times else None


@dataclass(slots=True)
class JobProgress(Progress):
    """Progress of a job, with all pending reasons so far."""

    spec: DemoJob
    pending_reason: PendingReason | None = None
    reasons: set[str] = field(default_factory=set)
    evictions: int = 0
    cluster: str = ""
    outcome: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether the job has finished, or is pending for the expected reason."""
        if self.spec.is_user_submitted:
            return True
        if self.spec.expected_reason is None:
            has_waited = Reason.PREEMPTION_IN_PROGRESS in self.reasons or not self.spec.reclaims
            return self.stage is JobStage.FINISHED and has_waited
        reason = self.pending_reason.reason if self.pending_reason else None
        return self.stage is JobStage.PENDING and reason == self.spec.expected_reason


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
        reached = status.stage
        progress.outcome = status.phase if reached is JobStage.FINISHED else ""
        if (
            status.suspended
            and reached is not JobStage.FINISHED
            and _ORDER[progress.stage] >= _ORDER[JobStage.ADMITTED]
        ):
            progress.evictions += 1
            progress.pending_reason = None
            for stage in (JobStage.ADMITTED, JobStage.RUNNING):  # waiting and run times count from now on
                progress.times.pop(stage, None)
            return [_entry(progress, at, JobStage.EVICTED, "evicted; it is pending again and keeps its age")]
        lines = [
            _entry(progress, at, stage, text)
            for stage, text in _messages(progress, status, at).items()
            if _ORDER[progress.stage] < _ORDER[stage] <= _ORDER[reached]
        ]
        return lines if progress.stage not in _IN_QUEUE else [*lines, *_pending_entry(progress, at)]

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
        return [] if progress.stage is JobStage.SUBMITTED else _pending_entry(progress, at)

    @property
    def is_over(self) -> bool:
        """Whether every job has reached its expected final state."""
        return all(progress.is_settled for progress in self.jobs.values())

    def is_running(self, jobs: Iterable[str]) -> bool:
        """Return whether all *jobs* run."""
        return all(self.jobs[job].stage is JobStage.RUNNING for job in jobs)

    @property
    def are_jobs_settled(self) -> bool:
        """Whether all jobs except HyperJob parts have reached their expected final state."""
        return all(progress.is_settled for progress in self.jobs.values() if not progress.spec.hyperjob)


def _pending_entry(progress: JobProgress, at: float) -> list[TimelineEntry]:
    reason = progress.pending_reason
    return [_entry(progress, at, JobStage.PENDING, str(reason))] if reason else []


def _entry(progress: JobProgress, at: float, stage: JobStage, text: str) -> TimelineEntry:
    return TimelineEntry(at, progress.spec.name, progress.reach(stage, at), text)


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


class PendingReasonReader:
    """Reads the log from the position where the last read ended."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0

    def read_new(self) -> Iterator[PendingReason]:
        """Yield pending reasons of the complete lines written since the last call."""
        if not self._log.exists():
            return
        with self._log.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                if pending_reason := parse_pending_reason(line):
                    yield pending_reason


def parse_pending_reason(line: bytes) -> PendingReason | None:
    """Return the pending reason that *line* reports, or ``None`` for other lines."""
    try:
        entry = json.loads(line)
    except ValueError:  # output of a crashing program is not JSON
        return None
    if not isinstance(entry, dict) or entry.get("event") != "workload pending":
        return None
    return PendingReason(str(entry["workload"]).rpartition(" ")[2], entry["reason"], entry["message"])


@dataclass(slots=True)
class HyperJobProgress(Progress):
    """Observed progress of a HyperJob, of a user if it has no *spec*.

    *split* has each part as its cluster and number of pods, *plans* by part the plan that first admitted it.
    """

    waits_from: ClassVar = JobStage.SUBMITTED
    runs_from: ClassVar = JobStage.ADMITTED
    name: str
    spec: DemoHyperJob | None = None
    split: tuple[str, ...] = ()
    reasons: list[str] = field(default_factory=list)
    outcome: str = ""
    message: str = ""
    plans: dict[str, str] = field(default_factory=dict)

    @property
    def has_been_pending(self) -> bool:
        """Whether it was pending for the expected reason."""
        return self.spec is None or self.spec.expected_reason is None or self.spec.expected_reason in self.reasons

    @property
    def is_settled(self) -> bool:
        """Whether it completed as expected: pending first, then admitted in one plan."""
        in_one_plan = len(self.plans) == len(self.split) > 1 and len({*self.plans.values()}) == 1
        return self.spec is None or (self.outcome == "Completed" and self.has_been_pending and in_one_plan)


class HyperJobTracker:
    """All HyperJobs by name."""

    def __init__(self, specs: Mapping[str, DemoHyperJob]) -> None:
        self.all: dict[str, HyperJobProgress] = {}
        self._specs = specs

    def on_hyperjob(self, hyperjob: Any, at: float) -> list[TimelineEntry]:
        """Process an observed HyperJob and return new timeline entries."""
        metadata, status = hyperjob["metadata"], hyperjob.get("status", {})
        name = f"{metadata['namespace']}/{metadata['name']}"
        new = HyperJobProgress(name, self._specs.get(name), times={JobStage.SUBMITTED: at})
        progress = self.all.setdefault(name, new)
        return [TimelineEntry(at, name, stage, text) for stage, text in _new_entries(progress, status, at)]

    def forget(self, name: str) -> None:
        """Remove a deleted HyperJob."""
        self.all.pop(name, None)

    def on_binding(self, demo_job: DemoJob, binding: BindingStatus) -> None:
        """Record the plan that admitted a part."""
        progress = self.all.get(demo_job.hyperjob)
        if progress is not None and binding.clusters and not binding.suspended:
            progress.plans.setdefault(binding.job, binding.plan)


def _new_entries(progress: HyperJobProgress, status: Any, at: float) -> Iterator[tuple[JobStage, str]]:
    """Yield stage and text of each change in *status*, and store it in *progress*."""
    phase = status.get("phase", "")
    parts = status.get("split", {}).get("parts", ())
    split = tuple(f"{part.get('cluster') or 'any cluster'} {sum(part.get('pods', ()))}" for part in parts)
    if split and split != progress.split:
        progress.split = split
        yield progress.reach(JobStage.SPLIT, at), f"in {len(split)} parts: {', '.join(split)}"
    progress.message = status.get("message", "")
    is_final = phase in _FINAL
    pending = {"type": "Pending", "status": "True"}
    reason = next((item["reason"] for item in status.get("conditions", ()) if pending.items() <= item.items()), "")
    if phase == "Pending" and reason not in {"", "Pending", *progress.reasons[-1:]}:
        progress.reasons.append(reason)
        yield progress.reach(JobStage.PENDING, at), f"{reason}: {progress.message}"
    if (phase in {"Admitted", "Running"} or is_final) and JobStage.ADMITTED not in progress.times:
        waited = at - progress.times[JobStage.SUBMITTED]
        yield progress.reach(JobStage.ADMITTED, at), f"all {len(split)} parts after {waited:.1f} s"
    if phase == "Running" and progress.stage is not JobStage.RUNNING:
        yield progress.reach(JobStage.RUNNING, at), f"{progress.message}, on {status.get('clusters', '')}"
    if is_final and progress.stage is not JobStage.FINISHED:
        progress.outcome = phase
        yield progress.reach(JobStage.FINISHED, at), f"{phase}: {progress.message}"


_STUCK: Final = {
    JobStage.SUBMITTED: ("has no binding", "karmada"),
    JobStage.SUSPENDED: ("is suspended, and the controller reports no pending reason", "controller"),
    JobStage.ADMITTED: ("was admitted to {cluster} but does not start", "karmada"),
    JobStage.RUNNING: ("runs on {cluster} but does not end", "karmada"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A deviation from the expected behaviour and the process whose log may explain it."""

    text: str
    log_name: str = "controller"


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Result of a run; jobs and HyperJobs that did not reach their expected state are problems."""

    problems: Sequence[Problem]
    ran: int
    inadmissible: Sequence[JobProgress]
    hyperjobs: Sequence[HyperJobProgress]

    @property
    def logs_to_check(self) -> list[str]:
        """The processes whose logs may explain the problems, most problems first."""
        names = [problem.log_name for problem in self.problems]
        return sorted(set(names), key=lambda name: (-names.count(name), name))


def evaluate(jobs: Iterable[JobProgress], hyperjobs: Iterable[HyperJobProgress]) -> DemoResult:
    """Return the result from the progress of all jobs and HyperJobs."""
    known = [progress for progress in jobs if not progress.spec.is_user_submitted]
    expected = [hyperjob for hyperjob in hyperjobs if hyperjob.spec is not None]
    return DemoResult(
        problems=[
            *(_job_problem(progress) for progress in known if not progress.is_settled),
            *(Problem(_hyperjob_problem(hyperjob)) for hyperjob in expected if not hyperjob.is_settled),
        ],
        ran=sum(progress.stage is JobStage.FINISHED and not progress.spec.hyperjob for progress in known),
        inadmissible=[progress for progress in known if progress.is_settled and progress.spec.expected_reason],
        hyperjobs=[hyperjob for hyperjob in expected if hyperjob.is_settled],
    )


def _job_problem(progress: JobProgress) -> Problem:
    """Return why a job did not reach its expected final state."""
    name, reason = progress.spec.name, progress.spec.expected_reason
    if progress.stage is JobStage.FINISHED:
        waits = progress.spec.reclaims
        why = "without waiting for evictions" if waits else f"although it should stay pending as {reason}"
        return Problem(f"{name} ran {why}")
    if progress.stage is JobStage.PENDING and (pending := progress.pending_reason):
        expected = f" instead of {reason}" if reason else ""
        return Problem(f"{name} is pending as {pending.reason}{expected}: {pending.message}")
    text, log_name = _STUCK[progress.stage]
    return Problem(f"{name} {text.format(cluster=progress.cluster or 'no cluster')}", log_name)


def _hyperjob_problem(hyperjob: HyperJobProgress) -> str:
    """Return why a HyperJob did not complete as expected."""
    if hyperjob.spec is not None and not hyperjob.has_been_pending:
        reasons = ", ".join(hyperjob.reasons) or "none"
        return f"{hyperjob.name} was not pending as {hyperjob.spec.expected_reason}; observed reasons: {reasons}"
    if (plans := len({*hyperjob.plans.values()})) > 1:
        return f"the parts of {hyperjob.name} were admitted in {plans} plans instead of one"
    parts = f"{len(hyperjob.split)} parts, {len(hyperjob.plans)} of them admitted"
    return f"{hyperjob.name} is {hyperjob.stage} with {parts}: {hyperjob.outcome or hyperjob.message}"
