"""What the demo has shown, or what went wrong and whose log says more. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from localup.demo.hyperjobs import HyperJobProgress
from localup.demo.timeline import JobProgress, JobStage

_STUCK: Final[dict[JobStage, tuple[str, str]]] = {
    JobStage.SUBMITTED: ("has no binding", "karmada"),
    JobStage.SUSPENDED: ("is paused, and the controller says nothing of it", "controller"),
    JobStage.ADMITTED: ("was admitted to {cluster} and does not start", "karmada"),
    JobStage.RUNNING: ("runs on {cluster} and does not end", "karmada"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that should not be so, and the process whose log may say why."""

    text: str
    log_name: str


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The outcome: no trouble is success."""

    problems: Sequence[Problem]
    ran: int
    inadmissible: Sequence[JobProgress]
    hyperjobs: Sequence[HyperJobProgress] = ()
    """Those that have run."""

    @property
    def logs_to_check(self) -> list[str]:
        """The processes whose logs are worth a look, the most suspected first."""
        counted = [problem.log_name for problem in self.problems]
        return sorted(set(counted), key=lambda name: (-counted.count(name), name))


def evaluate(
    jobs: Iterable[JobProgress], hyperjobs: Iterable[HyperJobProgress], violations: Iterable[str]
) -> DemoResult:
    """Return what to say of the ways of all jobs, of the HyperJobs, and of what was seen broken."""
    known = [progress for progress in jobs if not progress.spec.is_user_submitted]
    expected = [hyperjob for hyperjob in hyperjobs if hyperjob.spec is not None]
    seen = [
        Problem(text, "webhook" if "stored unpaused" in text else "controller") for text in dict.fromkeys(violations)
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
    """Return where a job is stuck that should have gone on."""
    name = progress.spec.name
    if progress.stage is JobStage.FINISHED and progress.spec.reclaims:
        return Problem(f"{name} has run, but was not seen to wait for others to go", "controller")
    if progress.stage is JobStage.FINISHED:
        return Problem(f"{name} has run, although it should wait as {progress.spec.expected_reason}", "controller")
    if progress.stage is JobStage.PENDING and progress.pending_reason:
        expected = f" instead of {progress.spec.expected_reason}" if progress.spec.expected_reason else ""
        return Problem(
            f"{name} waits as {progress.pending_reason.reason}{expected}: {progress.pending_reason.message}",
            "controller",
        )
    text, suspect = _STUCK[progress.stage]
    return Problem(f"{name} {text.format(cluster=progress.cluster or 'no cluster')}", suspect)


def _hyperjob_problem(hyperjob: HyperJobProgress) -> Problem:
    """Return what was not seen of a HyperJob."""
    if hyperjob.spec is not None and not hyperjob.has_been_pending:
        waited = ", ".join(hyperjob.reasons) or "nothing"
        return Problem(
            f"{hyperjob.name} was to wait as {hyperjob.spec.expected_reason} at first; it waited as {waited}",
            "controller",
        )
    text = (
        f"{hyperjob.name} is {hyperjob.stage} with {len(hyperjob.split)} parts, {len(hyperjob.plans)} of them admitted"
    )
    return Problem(f"{text}: {hyperjob.outcome or hyperjob.message}", "controller")
