"""Computes the combined status of a HyperJob from its state and its Jobs.

Pure. The last reported state of a Job stays after the Job is deleted: a finished Job may be removed by its TTL, and its
part stays finished.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from controller.api.hyperjobs import (
    FINISHED,
    Condition,
    HyperJob,
    HyperJobStatus,
    JobState,
    PartStatus,
    Phase,
    ReplicatedJob,
    ReplicatedJobStatus,
)
from controller.controllers.hyperjob.observed import POD_STATES, TERMINAL, ObservedChild
from controller.controllers.hyperjob.state import HyperJobState
from controller.kube.events import truncate

#: Phases in which each condition is true.
_TRUE_IN: Mapping[Phase, frozenset[Phase]] = {
    "Pending": frozenset({"Pending"}),
    "Admitted": frozenset({"Admitted", "Running"}),
    "Running": frozenset({"Running"}),
    "Suspended": frozenset({"Suspended"}),
    "Completed": frozenset({"Completed"}),
    "Failed": frozenset({"Failed"}),
}

#: Maximum length of a message; a condition that is longer than the API allows would make the whole status invalid.
_MAX_MESSAGE = 4096
#: Maximum size of the messages of all Jobs together: etcd stores no object of more than 1.5 MiB.
_MAX_JOB_MESSAGES_BYTES = 2**18


def compute_status(
    hyperjob: HyperJob, state: HyperJobState, jobs: Mapping[str, ObservedChild], now: int
) -> HyperJobStatus:
    """Return the status of *hyperjob* at *now*, in milliseconds."""
    time = datetime.fromtimestamp(now // 1000, UTC)
    before = hyperjob.status
    running = sum(part.phase == "Running" for part in state.parts)
    is_finished = state.phase in FINISHED
    state = _keep_message(hyperjob, replace(state, message=shorten(state.message)))
    return HyperJobStatus(
        conditions=tuple(_conditions(hyperjob, state, time)),
        replicated_jobs_status=tuple(_job_statuses(hyperjob, state.parts, jobs)),
        split_count=len(state.parts),
        observed_generation=hyperjob.metadata.generation,
        phase=state.phase,
        reason=state.reason if state.phase == "Pending" else "",
        message=state.message,
        queue=",".join(sorted({job.template_spec.queue for job in hyperjob.spec.replicated_jobs} - {""})),
        parts_running="" if is_finished else f"{running}/{len(state.parts)}",
        clusters=",".join(sorted({part.running_on or part.cluster for part in state.parts} - {""})),
        finished_at=(before.finished_at or time) if is_finished else None,
        split=state.split,
    )


def to_json(status: HyperJobStatus) -> dict[str, Any]:
    """Return *status* as JSON, without defaults."""
    return status.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def shorten(message: str) -> str:
    """Return *message*, cut to the length that a status may have."""
    return message if len(message) <= _MAX_MESSAGE else f"{message[: _MAX_MESSAGE - 1]}…"


def _conditions(hyperjob: HyperJob, state: HyperJobState, time: datetime) -> Iterable[Condition]:
    """Yield a condition for the phase and for each earlier condition."""
    before = {condition.type: condition for condition in hyperjob.status.conditions}
    for kind, phases in _TRUE_IN.items():
        holds = state.phase in phases
        if not holds and kind not in before:
            continue
        was = before.get(kind)
        status = "True" if holds else "False"
        yield Condition(
            type=kind,
            status=status,
            reason=state.reason or state.phase,
            message=state.message if kind == state.phase else "",
            last_transition_time=was.last_transition_time if was is not None and was.status == status else time,
            observed_generation=hyperjob.metadata.generation,
        )


def _keep_message(hyperjob: HyperJob, state: HyperJobState) -> HyperJobState:
    """Return *state* with its previous message if only amounts differ, so that waiting causes no writes."""
    before = hyperjob.status
    reasons = {
        condition.reason
        for condition in before.conditions
        if condition.type == "Pending" and condition.status == "True"
    }
    is_same = state.phase == before.phase == "Pending" and reasons == {state.reason or state.phase}
    if not is_same or before.observed_generation != hyperjob.metadata.generation:
        return state
    return (
        replace(state, message=before.message)
        if _without_amounts(state.message) == _without_amounts(before.message)
        else state
    )


def _without_amounts(message: str) -> list[str]:
    return ["" if word[:1].isdigit() else word for word in message.split()]


def _job_statuses(
    hyperjob: HyperJob, parts: tuple[PartStatus, ...], jobs: Mapping[str, ObservedChild]
) -> Iterable[ReplicatedJobStatus]:
    before = {job_status.name: job_status.job_states or {} for job_status in hyperjob.status.replicated_jobs_status}
    max_bytes = _MAX_JOB_MESSAGES_BYTES // max(len(parts), 1)
    for job in hyperjob.spec.replicated_jobs:
        own = [part for part in parts if part.replicated_job == job.name]
        yield _job_status(job, own, jobs, before=before.get(job.name, {}), max_bytes=max_bytes)


def _job_status(
    job: ReplicatedJob,
    parts: list[PartStatus],
    jobs: Mapping[str, ObservedChild],
    *,
    before: Mapping[str, JobState],
    max_bytes: int,
) -> ReplicatedJobStatus:
    """Return the status of one replicated job; messages of its Jobs that are longer than *max_bytes* are cut."""
    states: dict[str, JobState] = {}
    counts: Counter[str] = Counter()
    for part in parts:
        observed = jobs.get(part.name)
        is_current = observed is not None and observed.revision.attempt == part.attempt
        if observed is not None and is_current and (part.phase not in TERMINAL or _confirms_phase(part, observed)):
            if part.phase != "Pending":
                counts.update(observed.counts)
            if observed.state:
                state = JobState.model_validate(observed.state)
                if state.message:
                    state = state.model_copy(update={"message": truncate(state.message, max_bytes)})
                states[part.name] = state
            continue
        if part.phase in TERMINAL:
            counts["succeeded" if part.phase == "Completed" else "failed"] += sum(part.pods)
            states[part.name] = _last_state(part, before)
    return ReplicatedJobStatus(
        name=job.name, job_states=states or None, **{name: counts[name] or None for name in POD_STATES}
    )


def _confirms_phase(part: PartStatus, observed: ObservedChild) -> bool:
    """Whether a Job still reports that it is finished; observations may be late."""
    return observed.phase in ({"Completed"} if part.phase == "Completed" else {"Failed", "Terminated"})


def _last_state(part: PartStatus, before: Mapping[str, JobState]) -> JobState:
    """Return the last state of a finished part, as its Job reported it or as derived from its phase."""
    last = before.get(part.name)
    return last if last is not None and last.phase in {part.phase, "Terminated"} else JobState(phase=part.phase)
