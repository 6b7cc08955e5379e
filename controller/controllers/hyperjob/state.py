"""Computes the state of a HyperJob: its split, the phase of each part, and the consequences of failed parts.

Pure and level-triggered: earlier decisions are in the HyperJob's status, and the current state is in the observed
objects. A split stays while a part has started and the spec is unchanged; a part in a terminal phase never leaves it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from controller.api.hyperjob_validation import MAX_PARTS, hyperjob_violations
from controller.api.hyperjobs import HyperJob, PartStatus, Phase, SplitStatus
from controller.api.volcanojobs import JobSpec
from controller.controllers.hyperjob.children import minimum_parts
from controller.controllers.hyperjob.observed import (
    TERMINAL,
    ObservedParts,
    PendingReason,
    has_started,
    next_attempt,
    with_observation,
)
from controller.controllers.hyperjob.pod_distribution import SplitError
from controller.controllers.hyperjob.split import (
    CapacitySnapshot,
    SplitResult,
    allowed_clusters,
    is_automatic,
    requests_of_parts,
    split,
)
from controller.engine.placement.fit import FreeCapacity
from controller.engine.reasons import Reason
from controller.engine.state.resources import EMPTY, Resources, add, fits

#: Message of a suspended HyperJob.
SUSPENDED = "spec.suspend is set; set it to false to start again"
#: Maximum number of failed parts that a message names.
_MAX_NAMED_PARTS = 10
#: Maximum number of violations in a message.
_MAX_VIOLATIONS = 10
#: Pending reasons that other parts cause, the more specific first.
_GANG_REASONS = (Reason.HYPERJOB_DOES_NOT_FIT, Reason.HYPERJOB_INCOMPLETE)


def retry_failed_parts(hyperjob: HyperJob, split_status: SplitStatus, capacity: CapacitySnapshot) -> SplitStatus:
    """Return the split with failed parts pending again, up to their maximum number of retries."""
    most = hyperjob.spec.failure_policy.max_retries
    parts, rooms = [*split_status.parts], sorted(capacity.free, key=lambda room: room.name)
    retries = _Retries(hyperjob, capacity, rooms)
    for index, part in enumerate(parts):
        if part.phase == "Failed" and part.retries < most:
            parts[index] = retries.retry(part, parts)
    return split_status.model_copy(update={"parts": tuple(parts)})


@dataclass(slots=True)
class _Retries:
    """Retries failed parts of one HyperJob, which may be all of up to 1,000."""

    hyperjob: HyperJob
    capacity: CapacitySnapshot
    rooms: Sequence[FreeCapacity]
    """What is free in the clusters, by name."""
    taken: dict[str, Resources] = field(default_factory=dict)
    """What the parts that have moved use in their new clusters."""
    allowed: dict[str, frozenset[str]] = field(default_factory=dict)
    """The clusters that may take parts, by replicated job."""

    def retry(self, part: PartStatus, parts: Sequence[PartStatus]) -> PartStatus:
        """Return a failed one of *parts* for its next attempt."""
        spec, changes = self.hyperjob.spec, dict[str, object](retries=part.retries + 1)
        if spec.failure_policy.retry_on == "AnyCluster" and part.running_on:
            changes["failed_on"] = tuple(dict.fromkeys((*part.failed_on, part.running_on)))
            allowed = self._allowed_clusters(part.replicated_job) if part.cluster else frozenset()
            if allowed:
                used = {other.cluster for other in parts if other.name != part.name and other.cluster}
                within_limit = allowed if spec.max_domains is None or len(used) < spec.max_domains else allowed & used
                changes["cluster"] = self._other_cluster(part, within_limit)
        return next_attempt(part, **changes)

    def _allowed_clusters(self, replicated_job: str) -> frozenset[str]:
        if replicated_job not in self.allowed:
            self.allowed[replicated_job] = allowed_clusters(self.hyperjob, replicated_job, self.capacity)
        return self.allowed[replicated_job]

    def _other_cluster(self, part: PartStatus, allowed: Collection[str]) -> str:
        """Return the first *allowed* cluster by name that fits the part and where it has not failed, else its own."""
        (asked,) = requests_of_parts(self.hyperjob, [part])
        avoided = {*part.failed_on, part.running_on}
        for room in self.rooms:
            needed = add(self.taken.get(room.name, EMPTY), asked)
            if room.name in allowed and room.name not in avoided and fits(needed, room.headroom):
                self.taken[room.name] = needed
                return room.name
        return part.cluster


@dataclass(frozen=True, slots=True)
class HyperJobState:
    """Phase, message and split of a HyperJob."""

    phase: Phase
    message: str
    split: SplitStatus
    reason: str = ""
    """Why it is pending, as a stable code; empty where the phase is sufficient."""
    is_valid: bool = True
    """Whether the spec can be split now; if not, its parts stay unchanged."""

    @property
    def parts(self) -> tuple[PartStatus, ...]:
        """The parts of its split."""
        return self.split.parts


def compute_state(hyperjob: HyperJob, observed: ObservedParts, capacity: CapacitySnapshot) -> HyperJobState:
    """Return the current state of *hyperjob*."""
    status = hyperjob.status
    known = status.split or SplitStatus()
    if status.is_finished and status.phase:
        return HyperJobState(status.phase, status.message, known)
    parts = tuple(with_observation(part, observed) for part in known.parts)
    seen = known.model_copy(update={"parts": _complete_jobs(hyperjob, known.parts, parts)})
    if hyperjob.spec.suspend:
        return HyperJobState("Suspended", SUSPENDED, _stop_parts(seen))
    wrong = hyperjob_violations(hyperjob, max_parts(hyperjob, seen, capacity))
    if wrong:
        return HyperJobState("Pending", f"it cannot be split: {_join(wrong)}", seen, "Invalid", is_valid=False)
    capacity = capacity.with_data_of(hyperjob)
    try:
        split_status, reason = _split(hyperjob, seen, capacity)
        if reason is not None and split_status.specification != hyperjob.split_fingerprint:
            return HyperJobState("Pending", reason.message, split_status, reason.reason, is_valid=False)
        tried = retry_failed_parts(hyperjob, split_status, capacity)
        return _state_from_parts(hyperjob, tried, reason=reason or _pending_reason(tried, observed), capacity=capacity)
    except SplitError as error:
        return HyperJobState("Pending", f"it cannot be split: {error}", seen, "Invalid", is_valid=False)


def _complete_jobs(
    hyperjob: HyperJob, known: Sequence[PartStatus], parts: Sequence[PartStatus]
) -> tuple[PartStatus, ...]:
    """Return *parts* with the unfinished ones completed whose job a task has completed in other parts.

    A task completes its job by a policy, as in one Volcano Job, once all parts with pods of the task have completed. A
    part of *known* that fails at the same time, as its pods lose their leader, counts as completed.
    """
    parts_of = defaultdict[str, list[PartStatus]](list)
    for part in parts:
        parts_of[part.replicated_job].append(part)
    completed_by = {
        job.name: next(_completing_parts(job.template_spec, parts_of[job.name]), "")
        for job in hyperjob.spec.replicated_jobs
        if job.name in parts_of
    }
    result = []
    for before, part in zip(known, parts, strict=True):
        by = completed_by.get(part.replicated_job, "")
        is_stopped = by and before.phase not in TERMINAL and part.phase != "Completed"
        result.append(part.model_copy(update={"phase": "Completed", "completed_by": by}) if is_stopped else part)
    return tuple(result)


def _completing_parts(template: JobSpec, parts: Sequence[PartStatus]) -> Iterator[str]:
    """Yield the first part with each task that has completed its job."""
    for index, completes in enumerate(template.completing_tasks):
        if not completes:
            continue
        own = [part for part in parts if len(part.pods) == len(template.tasks) and part.pods[index]]
        if own and all(part.phase == "Completed" for part in own):
            yield own[0].name


def _join(violations: Sequence[str]) -> str:
    more = len(violations) - _MAX_VIOLATIONS
    return "; ".join((*violations[:_MAX_VIOLATIONS], *([f"and {more} more"] if more > 0 else ())))


def max_parts(hyperjob: HyperJob, known: SplitStatus, capacity: CapacitySnapshot) -> int:
    """Return how many parts *hyperjob* may have; a configured maximum stops no parts that have started."""
    has_begun = known.specification == hyperjob.split_fingerprint and any(map(has_started, known.parts))
    return MAX_PARTS if has_begun else capacity.max_parts


def _stop_parts(known: SplitStatus) -> SplitStatus:
    """Return the split with its unfinished parts pending, as before they started."""
    parts = tuple(part if part.phase in TERMINAL else next_attempt(part) for part in known.parts)
    return known.model_copy(update={"parts": parts})


# -- the split ----------------------------------------------------------------


def _split(
    hyperjob: HyperJob, known: SplitStatus, capacity: CapacitySnapshot
) -> tuple[SplitStatus, PendingReason | None]:
    """Return the split to use, and why it cannot start now as far as the clusters' capacity is concerned.

    Parts that have started stay as they are, with their earlier specification, until the changed spec can be split.
    """
    asked = hyperjob.split_fingerprint
    started = any(has_started(part) for part in known.parts)
    if known.specification == asked and known.parts and (started or not is_automatic(hyperjob)):
        return known, None
    result = split(hyperjob, _with_own_capacity(hyperjob, known, capacity))
    if known.specification == asked and known.parts and not _is_better(hyperjob, known, result, capacity=capacity):
        return known.model_copy(update={"fits": result.fits}), result.pending_reason
    if started and not result.parts and not result.fits:
        return known, result.pending_reason
    parts = _with_ranks(tuple(_carry_over(part, known.parts) for part in result.parts))
    changes = {"specification": asked, "fits": result.fits, "parts": parts}
    return known.model_copy(update=changes), result.pending_reason


def _is_better(hyperjob: HyperJob, known: SplitStatus, result: SplitResult, *, capacity: CapacitySnapshot) -> bool:
    """Whether a new split replaces a pending one: only the new one fits, or the cluster of a part no longer exists.

    A split that fits stays: moving it has no benefit.
    """
    if not result.parts:
        return False
    if result.fits:
        return not _fits(hyperjob, known.parts, capacity)
    names = {room.name for room in capacity.free if room.cluster_state.is_usable}
    return any(part.cluster and part.cluster not in names for part in known.parts)


def _fits(hyperjob: HyperJob, parts: Sequence[PartStatus], capacity: CapacitySnapshot) -> bool:
    left = {room.name: dict(room.headroom) for room in capacity.free if room.cluster_state.is_usable}
    for part, asked in zip(parts, requests_of_parts(hyperjob, parts), strict=True):
        if not part.cluster:
            continue
        room = left.get(part.cluster)  # type: ignore[call-overload]
        if room is None:
            return False
        for name, amount in asked.items():
            room[name] = room.get(name, 0) - amount
            if room[name] < 0:
                return False
    return True


def _with_own_capacity(hyperjob: HyperJob, known: SplitStatus, capacity: CapacitySnapshot) -> CapacitySnapshot:
    """Return *capacity* including what the parts use now, because a new split may use it."""
    held = [part for part in known.parts if part.phase in {"Admitted", "Running"} and part.running_on]
    if not held or not _match_spec(hyperjob, held):
        return capacity
    rooms = {room.name: room for room in capacity.free}
    for part, asked in zip(held, requests_of_parts(hyperjob, held), strict=True):
        room = rooms.get(part.running_on)  # type: ignore[call-overload]
        if room is not None:
            more = {name: room.headroom.get(name, 0) + asked.get(name, 0) for name in {*room.headroom, *asked}}
            rooms[room.name] = replace(room, headroom=more)
    return replace(capacity, free=[rooms[name] for name in sorted(rooms)])


def _match_spec(hyperjob: HyperJob, parts: Sequence[PartStatus]) -> bool:
    """Whether the spec still has the jobs of these parts, with the same number of tasks."""
    tasks = {job.name: len(job.template_spec.tasks) for job in hyperjob.spec.replicated_jobs}
    return all(tasks.get(part.replicated_job) == len(part.pods) for part in parts)


def _carry_over(part: PartStatus, known: Sequence[PartStatus]) -> PartStatus:
    """Return a part of a new split with the history of the part that had its name."""
    before = next((earlier for earlier in known if earlier.name == part.name), None)
    if before is None:
        return part
    history = {"attempt": before.attempt, "retries": before.retries, "failed_on": before.failed_on}
    if before.cluster == part.cluster and before.phase not in TERMINAL:
        history |= {"phase": before.phase, "running_on": before.running_on}
        if has_started(before):
            state = ("rank_offset", "world_size", "world_parts")
            history |= {name: getattr(before, name) for name in state}
        return part.model_copy(update=history)
    if before.phase in TERMINAL and before.pods == part.pods:
        return before
    return part.model_copy(update=history | {"attempt": before.attempt + has_started(before)})


def _with_ranks(parts: tuple[PartStatus, ...]) -> tuple[PartStatus, ...]:
    """Return *parts* with their rank offset and world size; parts that have them keep them."""
    size, offset = sum(sum(part.pods) for part in parts), 0
    ranked = []
    for part in parts:
        ranks = {"rank_offset": offset, "world_size": size, "world_parts": len(parts)}
        ranked.append(part if part.world_parts else part.model_copy(update=ranks))
        offset += sum(part.pods)
    return tuple(ranked)


# -- failures -----------------------------------------------------------------


def _state_from_parts(
    hyperjob: HyperJob, split_status: SplitStatus, *, reason: PendingReason | None, capacity: CapacitySnapshot
) -> HyperJobState:
    """Return the state that follows from the phases of the parts."""
    parts = split_status.parts
    if not parts:
        none = PendingReason("NoParts", "it has no parts; set replicas of a replicated job above zero")
        return _pending(split_status, reason or none)
    least = minimum_parts(hyperjob, len(parts))
    failed = [part.name for part in parts if part.phase == "Failed"]
    short = len(parts) - len(failed) < least
    if short and hyperjob.spec.failure_policy.below_minimum == "Rollback":
        return _roll_back(hyperjob, split_status, failed=failed, capacity=capacity)
    if all(part.phase in TERMINAL for part in parts):
        done = len(parts) - len(failed)
        phase: Phase = "Failed" if short else "Completed"
        return HyperJobState(phase, f"{done} of {len(parts)} parts completed{_name_failed(failed)}", split_status)
    return _state_in_progress(split_status, min(least, len(parts) - len(failed)), reason=reason)


def _roll_back(
    hyperjob: HyperJob, split_status: SplitStatus, *, failed: Sequence[str], capacity: CapacitySnapshot
) -> HyperJobState:
    policy = hyperjob.spec.failure_policy
    least = minimum_parts(hyperjob, len(split_status.parts))
    why = f"{len(split_status.parts) - len(failed)} parts remain of the {least} that it needs{_name_failed(failed)}"
    if split_status.restarts >= policy.max_restarts:
        return HyperJobState("Failed", f"{why}; all parts were stopped", split_status)
    fresh = tuple(next_attempt(part, retries=0, failed_on=()) for part in split_status.parts)
    reset = split_status.model_copy(update={"parts": fresh, "restarts": split_status.restarts + 1, "specification": ""})
    restarted, reason = _split(hyperjob, reset, capacity)
    if not restarted.parts:
        # It waits with its earlier split, so that its next Jobs are not mistaken for those that are being deleted.
        restarted = reset.model_copy(update={"specification": split_status.specification})
    return HyperJobState(
        "Pending", f"{why}; it starts again from the beginning", restarted, reason.reason if reason else ""
    )


def _state_in_progress(split_status: SplitStatus, least: int, *, reason: PendingReason | None) -> HyperJobState:
    parts = split_status.parts
    waiting = [part.name for part in parts if part.phase == "Pending"]
    running = [part for part in parts if part.phase == "Running"]
    in_clusters = len(parts) - len(waiting)
    started = sum(part.phase in {"Running", "Completed"} for part in parts)
    if running and started >= least:
        phase: Phase = "Running"
        message = f"{len(running)} of {len(parts)} parts run"
    elif in_clusters >= least:
        phase, message = "Admitted", f"{in_clusters} of {len(parts)} parts are admitted"
    else:
        return _pending(split_status, reason or PendingReason("", f"{len(waiting)} of {len(parts)} parts are pending"))
    return HyperJobState(phase, message, split_status)


def _pending(split_status: SplitStatus, reason: PendingReason) -> HyperJobState:
    return HyperJobState("Pending", reason.message, split_status, reason.reason)


def _pending_reason(split_status: SplitStatus, observed: ObservedParts) -> PendingReason | None:
    """Return the engine's pending reason; a part's own reason comes before one caused by other parts."""
    placed = [(part, observed.placement.get(part.name)) for part in split_status.parts if part.phase == "Pending"]
    reasons = [
        (part.name, where.pending_reason)
        for part, where in placed
        if where is not None and where.pending_reason is not None
    ]
    own = next(((name, reason) for name, reason in reasons if reason.reason not in _GANG_REASONS), None)
    if own is not None:
        return PendingReason(own[1].reason, f"part {own[0]} is pending: {own[1].message}")
    return min((reason for _, reason in reasons), key=lambda reason: _GANG_REASONS.index(reason.reason), default=None)


def _name_failed(failed: Sequence[str]) -> str:
    more = f" and {len(failed) - _MAX_NAMED_PARTS} more" if len(failed) > _MAX_NAMED_PARTS else ""
    return f"; failed: {', '.join(failed[:_MAX_NAMED_PARTS])}{more}" if failed else ""
