"""HyperJobs: their parts, their pending reasons, and whether their parts were admitted in one plan."""

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
    """Observed progress of a HyperJob."""

    name: str
    spec: DemoHyperJob | None = None
    """``None`` for a HyperJob that a user submitted; the demo expects nothing of it."""
    stage: JobStage = JobStage.SUBMITTED
    times: dict[JobStage, float] = field(default_factory=dict)
    split: tuple[str, ...] = ()
    """Each part, as its cluster and number of pods."""
    reasons: list[str] = field(default_factory=list)
    """Successive pending reasons."""
    outcome: str = ""
    message: str = ""
    plans: dict[str, str] = field(default_factory=dict)
    """By part, the plan that first admitted it."""

    @property
    def has_been_pending(self) -> bool:
        """Return whether it was pending for the expected reason."""
        return self.spec is None or self.spec.expected_reason is None or self.spec.expected_reason in self.reasons

    @property
    def is_settled(self) -> bool:
        """Return whether it completed as expected: pending first, then admitted in one plan."""
        whole = len(self.plans) == len(self.split) > 1 and len({*self.plans.values()}) == 1
        return self.spec is None or (self.outcome == "Completed" and self.has_been_pending and whole)

    @property
    def waited(self) -> float | None:
        """Return the seconds from submission to admission."""
        return self._between(JobStage.SUBMITTED, JobStage.ADMITTED)

    @property
    def ran(self) -> float | None:
        """Return the seconds from admission to the end."""
        return self._between(JobStage.ADMITTED, JobStage.FINISHED)

    def _between(self, first: JobStage, last: JobStage) -> float | None:
        return self.times[last] - self.times[first] if first in self.times and last in self.times else None


class HyperJobTracker:
    """All HyperJobs by name."""

    def __init__(self, specs: Mapping[str, DemoHyperJob]) -> None:
        self.all: dict[str, HyperJobProgress] = {}
        self._specs = specs

    def on_hyperjob(self, hyperjob: Any, at: float) -> list[TimelineEntry]:
        """Process an observed HyperJob and return new timeline entries."""
        metadata, status = hyperjob["metadata"], hyperjob.get("status", {})
        name = f"{metadata['namespace']}/{metadata['name']}"
        progress = self.all.setdefault(
            name, HyperJobProgress(name, self._specs.get(name), times={JobStage.SUBMITTED: at})
        )
        return [TimelineEntry(at, name, stage, text) for stage, text in _new_entries(progress, status, at)]

    def forget(self, name: str) -> None:
        """Remove a deleted HyperJob."""
        self.all.pop(name, None)

    def on_binding(self, demo_job: DemoJob, binding: BindingStatus) -> None:
        """Record the plan that admitted a part."""
        progress = self.all.get(demo_job.hyperjob)
        if progress is not None and binding.is_admitted:
            progress.plans.setdefault(binding.job, binding.plan)

    @property
    def have_been_pending(self) -> bool:
        """Return whether every HyperJob was pending for its expected reason."""
        return all(progress.has_been_pending for progress in self.all.values())

    @property
    def violations(self) -> Iterable[str]:
        """Return violations observed on parts."""
        return [
            f"the parts of {progress.name} were admitted in {len({*progress.plans.values()})} plans instead of one"
            for progress in self.all.values()
            if progress.spec is not None and len({*progress.plans.values()}) > 1
        ]


def _new_entries(progress: HyperJobProgress, status: Any, at: float) -> Iterator[tuple[JobStage, str]]:
    """Yield stage and text of each change in *status*, and store it in *progress*."""
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
    """Return the pending reason; empty if the phase tells all."""
    pending = (
        condition
        for condition in status.get("conditions", ())
        if condition["type"] == "Pending" and condition["status"] == "True"
    )
    reason = next((str(item["reason"]) for item in pending), "")
    return "" if reason == "Pending" else reason
