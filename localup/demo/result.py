"""Evaluates the demo: what ran as expected, and which problems occurred."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from localup.demo.hyperjobs import HyperJobProgress
from localup.demo.timeline import JobProgress, JobStage

_STUCK: Final[dict[JobStage, tuple[str, str]]] = {
    JobStage.SUBMITTED: ("has no binding", "karmada"),
    JobStage.SUSPENDED: ("is suspended, and the controller reports no pending reason", "controller"),
    JobStage.ADMITTED: ("was admitted to {cluster} but does not start", "karmada"),
    JobStage.RUNNING: ("runs on {cluster} but does not end", "karmada"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A deviation from the expected behaviour and the process whose log may explain it."""

    text: str
    log_name: str


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Result of a run; it is successful without problems."""

    problems: Sequence[Problem]
    ran: int
    inadmissible: Sequence[JobProgress]
    hyperjobs: Sequence[HyperJobProgress] = ()
    """HyperJobs that completed as expected."""

    @property
    def logs_to_check(self) -> list[str]:
        """Return the processes whose logs may explain the problems, most problems first."""
        counted = [problem.log_name for problem in self.problems]
        return sorted(set(counted), key=lambda name: (-counted.count(name), name))


def evaluate(
    jobs: Iterable[JobProgress], hyperjobs: Iterable[HyperJobProgress], violations: Iterable[str]
) -> DemoResult:
    """Return the result from the progress of all jobs and HyperJobs and from the observed violations."""
    known = [progress for progress in jobs if not progress.spec.is_user_submitted]
    expected = [hyperjob for hyperjob in hyperjobs if hyperjob.spec is not None]
    seen = [
        Problem(text, "webhook" if "stored without being suspended" in text else "controller")
        for text in dict.fromkeys(violations)
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
    """Return why a job did not reach its expected final state."""
    name = progress.spec.name
    if progress.stage is JobStage.FINISHED and progress.spec.reclaims:
        return Problem(f"{name} ran without waiting for evictions", "controller")
    if progress.stage is JobStage.FINISHED:
        return Problem(f"{name} ran although it should stay pending as {progress.spec.expected_reason}", "controller")
    if progress.stage is JobStage.PENDING and progress.pending_reason:
        expected = f" instead of {progress.spec.expected_reason}" if progress.spec.expected_reason else ""
        return Problem(
            f"{name} is pending as {progress.pending_reason.reason}{expected}: {progress.pending_reason.message}",
            "controller",
        )
    text, suspect = _STUCK[progress.stage]
    return Problem(f"{name} {text.format(cluster=progress.cluster or 'no cluster')}", suspect)


def _hyperjob_problem(hyperjob: HyperJobProgress) -> Problem:
    """Return why a HyperJob did not complete as expected."""
    if hyperjob.spec is not None and not hyperjob.has_been_pending:
        waited = ", ".join(hyperjob.reasons) or "none"
        return Problem(
            f"{hyperjob.name} was not pending as {hyperjob.spec.expected_reason}; observed reasons: {waited}",
            "controller",
        )
    text = (
        f"{hyperjob.name} is {hyperjob.stage} with {len(hyperjob.split)} parts, {len(hyperjob.plans)} of them admitted"
    )
    return Problem(f"{text}: {hyperjob.outcome or hyperjob.message}", "controller")
