"""The HyperJobs: what each is split into, why it waits, and that its parts were let in together. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from localup.demo.binding_status import BindingStatus
from localup.demo.scenario import DemoHyperJob, DemoJob
from localup.demo.timeline import JobStage, TimelineEntry

_FINAL = ("Completed", "Failed")
_IN_CLUSTERS = {"Admitted": JobStage.ADMITTED, "Running": JobStage.RUNNING}


@dataclass(slots=True)
class HyperJobProgress:
    """One HyperJob as it is seen."""

    name: str
    spec: DemoHyperJob | None = None
    """Nothing is expected of one that somebody at the keyboard has submitted."""
    stage: JobStage = JobStage.SUBMITTED
    times: dict[JobStage, float] = field(default_factory=dict)
    split: tuple[str, ...] = ()
    """Each part, as so many pods in a cluster."""
    reasons: list[str] = field(default_factory=list)
    """Why it waited, one reason after the other."""
    outcome: str = ""
    message: str = ""
    plans: dict[str, str] = field(default_factory=dict)
    """By part, the plan in which it was first admitted."""

    @property
    def has_been_pending(self) -> bool:
        """Say whether it was seen to wait as it was to wait at first."""
        return self.spec is None or self.spec.expected_reason is None or self.spec.expected_reason in self.reasons

    @property
    def is_settled(self) -> bool:
        """Say whether all was seen of it that was to be seen."""
        whole = len(self.plans) == len(self.split) > 1 and len({*self.plans.values()}) == 1
        return self.spec is None or (self.outcome == "Completed" and self.has_been_pending and whole)

    @property
    def waited(self) -> float | None:
        """How long it took until its parts were let in."""
        return self._between(JobStage.SUBMITTED, JobStage.ADMITTED)

    @property
    def ran(self) -> float | None:
        """How long its parts ran."""
        return self._between(JobStage.ADMITTED, JobStage.FINISHED)

    def _between(self, first: JobStage, last: JobStage) -> float | None:
        return self.times[last] - self.times[first] if first in self.times and last in self.times else None


class HyperJobTracker:
    """All HyperJobs by name."""

    def __init__(self, roles: Mapping[str, DemoHyperJob]) -> None:
        self.all: dict[str, HyperJobProgress] = {}
        self._jobs = roles

    def on_hyperjob(self, hyperjob: Any, at: float) -> list[TimelineEntry]:
        """Take a HyperJob as it is now, and tell the steps that it shows."""
        metadata, status = hyperjob["metadata"], hyperjob.get("status", {})
        name = f"{metadata['namespace']}/{metadata['name']}"
        progress = self.all.setdefault(
            name, HyperJobProgress(name, self._jobs.get(name), times={JobStage.SUBMITTED: at})
        )
        return [TimelineEntry(at, name, stage, words) for stage, words in _new_entries(progress, status, at)]

    def forget(self, name: str) -> None:
        """Take a HyperJob as gone."""
        self.all.pop(name, None)

    def on_binding(self, demo_job: DemoJob, binding: BindingStatus) -> None:
        """Take what is seen of the binding of a part."""
        progress = self.all.get(demo_job.hyperjob)
        if progress is not None and binding.is_admitted:
            progress.plans.setdefault(binding.job, binding.plan)

    @property
    def have_been_pending(self) -> bool:
        """Say whether everyone who is to wait at first was seen to."""
        return all(progress.has_been_pending for progress in self.all.values())

    @property
    def violations(self) -> Iterable[str]:
        """What was seen of parts that should never be seen."""
        return [
            f"the parts of {progress.name} were admitted in {len({*progress.plans.values()})} plans instead of one"
            for progress in self.all.values()
            if progress.spec is not None and len({*progress.plans.values()}) > 1
        ]


def _new_entries(progress: HyperJobProgress, status: Any, at: float) -> Iterator[tuple[JobStage, str]]:
    """Yield what is new in *status*, each as a stage and words, and keep it in *family*."""
    phase = status.get("phase", "")
    split = tuple(_part_text(part) for part in status.get("split", {}).get("parts", ()))
    if split and split != progress.split:
        progress.split = split
        yield _reach(progress, JobStage.SPLIT, at), f"in {len(split)} parts: {', '.join(split)}"
    progress.message = status.get("message", "")
    reason = _reason(status)
    if phase == "Pending" and reason and reason not in progress.reasons[-1:]:
        progress.reasons.append(reason)
        yield _reach(progress, JobStage.PENDING, at), f"{reason}: {progress.message}"
    if phase in (*_IN_CLUSTERS, *_FINAL) and JobStage.ADMITTED not in progress.times:
        waited = at - progress.times[JobStage.SUBMITTED]
        yield _reach(progress, JobStage.ADMITTED, at), f"all {len(split)} parts after {waited:.1f} s"
    if phase == "Running" and progress.stage is not JobStage.RUNNING:
        yield _reach(progress, JobStage.RUNNING, at), f"{progress.message}, on {status.get('clusters', '')}"
    if phase in _FINAL and progress.stage is not JobStage.FINISHED:
        progress.outcome = phase
        yield _reach(progress, JobStage.FINISHED, at), f"{phase}: {progress.message}"


def _reach(progress: HyperJobProgress, stage: JobStage, at: float) -> JobStage:
    progress.stage = stage
    progress.times.setdefault(stage, at)
    return stage


def _part_text(part: Any) -> str:
    return f"{part.get('cluster') or 'any cluster'} {sum(part.get('pods', ()))}"


def _reason(status: Any) -> str:
    """Return why it waits, empty where the phase says it all."""
    told = (
        condition
        for condition in status.get("conditions", ())
        if condition["type"] == "Pending" and condition["status"] == "True"
    )
    reason = next((str(item["reason"]) for item in told), "")
    return "" if reason == "Pending" else reason
