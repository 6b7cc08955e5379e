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
    role: DemoHyperJob | None = None
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
    def has_waited(self) -> bool:
        """Say whether it was seen to wait as it was to wait at first."""
        return self.role is None or self.role.first is None or self.role.first in self.reasons

    @property
    def is_settled(self) -> bool:
        """Say whether all was seen of it that was to be seen."""
        whole = len(self.plans) == len(self.split) > 1 and len({*self.plans.values()}) == 1
        return self.role is None or (self.outcome == "Completed" and self.has_waited and whole)

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
        self._roles = roles

    def take(self, hyperjob: Any, at: float) -> list[TimelineEntry]:
        """Take a HyperJob as it is now, and tell the steps that it shows."""
        metadata, status = hyperjob["metadata"], hyperjob.get("status", {})
        name = f"{metadata['namespace']}/{metadata['name']}"
        family = self.all.setdefault(
            name, HyperJobProgress(name, self._roles.get(name), times={JobStage.SUBMITTED: at})
        )
        return [TimelineEntry(at, name, stage, words) for stage, words in _new_entries(family, status, at)]

    def forget(self, name: str) -> None:
        """Take a HyperJob as gone."""
        self.all.pop(name, None)

    def saw(self, role: DemoJob, sighting: BindingStatus) -> None:
        """Take what is seen of the binding of a part."""
        family = self.all.get(role.family)
        if family is not None and sighting.is_admitted:
            family.plans.setdefault(sighting.job, sighting.plan)

    @property
    def have_waited(self) -> bool:
        """Say whether everyone who is to wait at first was seen to."""
        return all(family.has_waited for family in self.all.values())

    @property
    def broken(self) -> Iterable[str]:
        """What was seen of parts that should never be seen."""
        return [
            f"the parts of {family.name} were admitted in {len({*family.plans.values()})} plans instead of one"
            for family in self.all.values()
            if family.role is not None and len({*family.plans.values()}) > 1
        ]


def _new_entries(family: HyperJobProgress, status: Any, at: float) -> Iterator[tuple[JobStage, str]]:
    """Yield what is new in *status*, each as a stage and words, and keep it in *family*."""
    phase = status.get("phase", "")
    split = tuple(_part_text(part) for part in status.get("split", {}).get("parts", ()))
    if split and split != family.split:
        family.split = split
        yield _reach(family, JobStage.SPLIT, at), f"in {len(split)} parts: {', '.join(split)}"
    family.message = status.get("message", "")
    reason = _reason(status)
    if phase == "Pending" and reason and reason not in family.reasons[-1:]:
        family.reasons.append(reason)
        yield _reach(family, JobStage.WAITING, at), f"{reason}: {family.message}"
    if phase in (*_IN_CLUSTERS, *_FINAL) and JobStage.ADMITTED not in family.times:
        waited = at - family.times[JobStage.SUBMITTED]
        yield _reach(family, JobStage.ADMITTED, at), f"all {len(split)} parts after {waited:.1f} s"
    if phase == "Running" and family.stage is not JobStage.RUNNING:
        yield _reach(family, JobStage.RUNNING, at), f"{family.message}, on {status.get('clusters', '')}"
    if phase in _FINAL and family.stage is not JobStage.FINISHED:
        family.outcome = phase
        yield _reach(family, JobStage.FINISHED, at), f"{phase}: {family.message}"


def _reach(family: HyperJobProgress, stage: JobStage, at: float) -> JobStage:
    family.stage = stage
    family.times.setdefault(stage, at)
    return stage


def _part_text(part: Any) -> str:
    return f"{part.get('cluster') or 'any cluster'} {sum(part.get('pods', ()))}"


def _reason(status: Any) -> str:
    """Return why it waits, empty where the phase says it all."""
    told = (each for each in status.get("conditions", ()) if each["type"] == "Pending" and each["status"] == "True")
    reason = next((str(each["reason"]) for each in told), "")
    return "" if reason == "Pending" else reason
