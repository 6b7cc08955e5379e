"""What the demo has shown, or what went wrong and whose log says more. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from localup.demo.hyperjobs import HyperJobProgress
from localup.demo.timeline import JobProgress, JobStage

_STUCK: Final[dict[JobStage, tuple[str, str]]] = {
    JobStage.SUBMITTED: ("has no binding", "karmada"),
    JobStage.PAUSED: ("is paused, and the controller says nothing of it", "controller"),
    JobStage.ADMITTED: ("was admitted to {cluster} and does not start", "karmada"),
    JobStage.RUNNING: ("runs on {cluster} and does not end", "karmada"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that should not be so, and the process whose log may say why."""

    text: str
    suspect: str


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The outcome: no trouble is success."""

    troubles: Sequence[Problem]
    ran: int
    forever: Sequence[JobProgress]
    hyperjobs: Sequence[HyperJobProgress] = ()
    """Those that have run."""

    @property
    def suspects(self) -> list[str]:
        """The processes whose logs are worth a look, the most suspected first."""
        counted = [trouble.suspect for trouble in self.troubles]
        return sorted(set(counted), key=lambda name: (-counted.count(name), name))


def evaluate(ways: Iterable[JobProgress], families: Iterable[HyperJobProgress], broken: Iterable[str]) -> DemoResult:
    """Return what to say of the ways of all jobs, of the HyperJobs, and of what was seen broken."""
    known = [way for way in ways if not way.role.is_guest]
    expected = [family for family in families if family.role is not None]
    seen = [Problem(text, "webhook" if "stored unpaused" in text else "controller") for text in dict.fromkeys(broken)]
    stuck = [_job_problem(way) for way in known if not way.is_settled]
    astray = [_hyperjob_problem(family) for family in expected if not family.is_settled]
    return DemoResult(
        troubles=[*seen, *stuck, *astray],
        ran=sum(way.stage is JobStage.FINISHED and not way.role.family for way in known),
        forever=[way for way in known if way.is_settled and way.role.forever is not None],
        hyperjobs=[family for family in expected if family.is_settled],
    )


def _job_problem(way: JobProgress) -> Problem:
    """Return where a job is stuck that should have gone on."""
    name = way.role.name
    if way.stage is JobStage.FINISHED and way.role.reclaims:
        return Problem(f"{name} has run, but was not seen to wait for others to go", "controller")
    if way.stage is JobStage.FINISHED:
        return Problem(f"{name} has run, although it should wait as {way.role.forever}", "controller")
    if way.stage is JobStage.WAITING and way.complaint:
        expected = f" instead of {way.role.forever}" if way.role.forever else ""
        return Problem(f"{name} waits as {way.complaint.reason}{expected}: {way.complaint.message}", "controller")
    text, suspect = _STUCK[way.stage]
    return Problem(f"{name} {text.format(cluster=way.cluster or 'no cluster')}", suspect)


def _hyperjob_problem(family: HyperJobProgress) -> Problem:
    """Return what was not seen of a HyperJob."""
    if family.role is not None and not family.has_waited:
        waited = ", ".join(family.reasons) or "nothing"
        return Problem(
            f"{family.name} was to wait as {family.role.first} at first; it waited as {waited}", "controller"
        )
    text = f"{family.name} is {family.stage} with {len(family.split)} parts, {len(family.plans)} of them admitted"
    return Problem(f"{text}: {family.outcome or family.message}", "controller")
