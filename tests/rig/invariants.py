"""Verifies I1, I2, I3, I5 and I6 at every revision of the store, and that no write was unnecessary (I7).

It reads the store's history and the API server's audit log; the controller is only known as a user. The harness
verifies I4 and I8 at run time.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import inf
from typing import Any

from controller.api.keys import DATA_EXCLUDED_ANNOTATION, DATA_PLACEMENT_ANNOTATION
from tests.rig.admission_order import Admission, AdmissionOrder, find_admissions
from tests.rig.audit import Request
from tests.rig.binding_state import RECORD, BindingState, parse_binding
from tests.rig.history import Change, Key
from tests.rig.hyperjob_invariant import HyperJobChecker
from tests.rig.observed_usage import LAG, ObservedUsage, placement

#: Minimum seconds between writes of one binding, with a tolerance for clock differences.
MIN_RETRY_DELAY = 0.9
#: Maximum time until Karmada has observed an eviction, in seconds.
_KARMADA_DELAY = 1.0
_TRACES = ("managedFields", "resourceVersion", "generation")
OURS = {
    ("metadata", "annotations", RECORD),
    ("spec", "suspension"),  # if it did not exist
    ("spec", "suspension", "scheduling"),
    ("spec", "clusters"),
    ("spec", "gracefulEvictionTasks"),
    # For a workload with a claim that Karmada places (C6).
    ("spec", "placement", "clusterAffinity"),  # if it was empty
    ("spec", "placement", "clusterAffinity", "exclude"),
    ("metadata", "annotations", DATA_PLACEMENT_ANNOTATION),
    ("metadata", "annotations", DATA_EXCLUDED_ANNOTATION),
    ("status", "schedulerObservingAffinityName"),
    ("status", "conditions"),  # stale after an eviction
}
_POD_NUMBERS = {("status", name) for name in ("pending", "running", "succeeded", "failed", "terminating", "unknown")}
OURS_OF_JOBS = {
    *(("status", "state", name) for name in ("phase", "reason", "message", "lastTransitionTime")),
    *_POD_NUMBERS,  # stale after an eviction
}
_PRODUCER = "volcano-global"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Observations of a run."""

    changes: Iterable[Change]
    requests: Iterable[Request] = ()
    """The controllers' writes except leases."""
    ungated: frozenset[str] = frozenset()
    """Jobs whose bindings were resumed by others on purpose."""
    stamps: frozenset[tuple[str, ...]] = frozenset()
    """Fields that another client adds to every write."""
    classes: Mapping[str, int] = field(default_factory=dict)
    """Values of the PriorityClasses."""
    with_failed_writes: AbstractSet[str] = frozenset()
    """Jobs with a lost or rejected write."""
    max_event_delay: float = 1
    """Maximum delay of events until the controller decides, in seconds."""
    is_by_priority: Callable[[float, float], bool] = lambda _, __: True
    """Whether between two times the order depended on priorities and ages only, not on fair shares (O3)."""
    is_placed_freely: Callable[[str], bool] = lambda _: True
    """Whether a job, by name, can use each cluster that its binding's affinity names, without its data (C6)."""


def violations(evidence: Evidence) -> list[str]:
    """Return a sentence per violation in order of occurrence.

    Deployments and Jobs of Kubernetes, which only some tests gate, are left out.
    """
    changes = tuple(change for change in evidence.changes if not _is_of_other_kind(change))
    checker = InvariantChecker(evidence, find_admissions(changes, time.time() - time.monotonic()))
    sentences = [violation for change in changes for violation in checker.apply(change)]
    return [*sentences, *_no_op_writes(evidence), *immediate_retries(evidence.requests)]


class InvariantChecker:
    """Verifies I1, I2, I3, I5 and I6 for one change after the other.

    *admissions* has those of later changes too, as far as they may have been decided earlier. States of queues and
    clusters up to *lag* seconds old may be decided on.
    """

    def __init__(self, evidence: Evidence, admissions: Sequence[Admission], *, lag: float = LAG) -> None:
        self.usage = ObservedUsage(lag=lag)
        self.hyperjobs = HyperJobChecker()
        self._evidence = evidence
        self._order = AdmissionOrder(
            self.usage,
            admissions,
            evidence.classes,
            evidence.with_failed_writes,
            evidence.max_event_delay,
            evidence.is_by_priority,
            evidence.is_placed_freely,
        )
        self._ours = {request.revision for request in evidence.requests if request.done and request.revision}
        self._reported: set[Key] = set()
        """Jobs with a report since their last admission."""

    def apply(self, change: Change, *, by_controller: bool = False) -> Iterator[str]:
        """Apply *change* and yield its violations; *by_controller* names a write that is not in the evidence."""
        evidence, usage, order = self._evidence, self.usage, self._order
        yield from (f"I5 at {violation}" for violation in self.hyperjobs.apply(change))
        before = usage.bindings.get(change.key) if change.kind == "resourcebindings" else None
        order.apply(change, before=before)
        usage.apply(change)
        mine = by_controller or change.revision in self._ours
        if change.kind == "resourcebindings" and change.after is not None:
            after = usage.bindings[change.key]
            if after.suspended:
                self._reported.discard(after.job)
            yield from _over_admitted(usage, change, before=before, after=after)
            yield from order.find_overtaken(change, before, after)
            yield from _resumed_without_record(change, after, ungated=evidence.ungated)
            if mine:
                yield from _unexpected_changes(change, OURS | evidence.stamps)
                yield from _changes_of_others(change, after)
        elif change.kind == "jobs" and mine and change.before is not None:
            # A write of the status cannot change the spec; the server stores the defaults of jobs put into etcd.
            yield from _unexpected_changes(change, OURS_OF_JOBS | evidence.stamps, but="spec")
            if change.key in self._reported:
                yield from _overwritten_status(usage, change)
        elif change.kind == "jobs" and change.before is not None and change.after is not None:
            if not mine and change.before.get("status") != change.after.get("status"):
                self._reported.add(change.key)
        elif change.kind == "works" and change.before is None:
            yield from _work_too_early(usage, change)


def _is_of_other_kind(change: Change) -> bool:
    """Return whether *change* is one of a Deployment, of a Job of Kubernetes, or of its binding."""
    bindings = (change.before, change.after) if change.kind == "resourcebindings" else ()
    is_binding = any(not parse_binding(obj).is_volcano_job for obj in bindings if obj is not None)
    return change.kind in {"deployments", "batch/jobs"} or is_binding


def _over_admitted(
    usage: ObservedUsage, change: Change, *, before: BindingState | None, after: BindingState
) -> Iterator[str]:
    """I1: at an admission the usage fits every queue of the path and every cluster."""
    if not after.gated or not after.is_admitted_since(before):
        return
    at, where = change.at, f"at {change.revision} {'/'.join(change.key)}"
    queue = usage.queue(after)
    if not usage.is_open(queue, at):
        yield f"I1 {where} was admitted by queue {queue}, which is not open"
    for name in usage.path(queue, at):
        held = usage.held_in(name, at)
        for resource in usage.whole(after):
            most = usage.queue_limit(name, resource, at)
            if held[resource] > most and _counts(usage, name, resource):
                yield f"I1 {where} uses {held[resource]} {resource} of queue {name}, more than its limit {most}"
    for cluster in {*after.clusters}:
        for resource in usage.gang(after):
            if (held := _overcommitted(usage, after, cluster, resource, at)) is not None:
                asked = usage.gang(after)[resource]
                yield f"I1 {where} needs {asked} {resource} on {cluster}, where others use {held}"


def _overcommitted(usage: ObservedUsage, after: BindingState, cluster: str, resource: str, at: float) -> Any:
    """Return what other workloads use on *cluster* if *after* cannot have been admitted to it, otherwise ``None``.

    Only the gang must fit, but all requests are charged (D11). The writes of a plan arrive in any order, so the
    workloads that were not decided before *after* are judged in the order in which most of them fit.
    """
    decided = after.recorded_at("admittedAt") or inf
    others = [
        item
        for item in usage.holders()
        # What Karmada has moved is accepted or evicted later (R1); what runs there already is always accepted.
        if cluster in placement(item) and cluster in (item.record.get("clusters") or (cluster,))
        if (item.recorded_at("clustersChangedAt") or 0) < decided
        if item.uid != after.uid and not usage.is_unseen(item, at)
    ]
    peers = [item for item in others if (item.recorded_at("admittedAt") or 0) >= decided]
    copies = {item.uid: placement(item).count(cluster) for item in [*others, after]}
    charges = {uid: usage.charges[uid].get(resource, 0) * count for uid, count in copies.items()}
    gangs = {item.uid: usage.gang(item).get(resource, 0) * copies[item.uid] for item in [*peers, after]}
    held = sum(charges[item.uid] for item in others if item.uid not in gangs)
    most = usage.free_capacity(cluster, resource, at) - usage.external.least(cluster, resource, at)
    # A gang that does not request the resource fits after all others.
    for uid in sorted(gangs, key=lambda uid: (not gangs[uid], charges[uid] - gangs[uid])):
        if gangs[uid] and held + gangs[uid] > most:
            return sum(charges[item.uid] for item in others)
        held += charges[uid]
    return None


def _counts(usage: ObservedUsage, queue: str, resource: str) -> bool:
    """Return whether *queue* limits *resource*; pods only if its capability names them."""
    return resource != "pods" or queue == "root"


def _resumed_without_record(change: Change, after: BindingState, *, ungated: frozenset[str]) -> Iterator[str]:
    """I3: a gated binding that is not suspended has an admission record for its uid."""
    if after.gated and not after.suspended and not after.admitted and after.job[1] not in ungated:
        yield f"I3 at {change.revision} {'/'.join(change.key)} is not paused and has no record of its admission"


def _work_too_early(usage: ObservedUsage, change: Change) -> Iterator[str]:
    """I3: no Work before the admission, nor later than a moment after its end, which Karmada observes with a delay.

    A decision of its scheduler may place a workload after its eviction, until the controller sees that.
    """
    annotations = (change.after or {}).get("metadata", {}).get("annotations", {})
    name = annotations.get("resourcebinding.karmada.io/name", "")
    binding = usage.bindings.get((annotations.get("resourcebinding.karmada.io/namespace", ""), name))
    if binding is None or not binding.gated or binding.admitted or usage.is_unseen(binding, change.at):
        return
    if change.at - usage.admitted_until.get(binding.uid, float("-inf")) > _KARMADA_DELAY:
        yield f"I3 at {change.revision} there is a Work for {name}, which is not admitted"


def _unexpected_changes(change: Change, allowed: Collection[tuple[str, ...]], *, but: str = "") -> Iterator[str]:
    """I2: the controller changes only suspension, clusters and its record."""
    before, after = _flat(change.before), _flat(change.after)
    for path in sorted({*before, *after}):
        if before.get(path) != after.get(path) and path not in allowed and path[0] != but:
            yield f"I2 at {change.revision} a write of ours changed {'.'.join(path)} of {'/'.join(change.key)}"


def _changes_of_others(change: Change, after: BindingState) -> Iterator[str]:
    """I2: parts of fields that belong to Karmada, to its policies, or to the workload while it is admitted."""
    old, new = change.before or {}, change.after or {}
    where = f"of {'/'.join(change.key)}"
    if _foreign_tasks(old) != _foreign_tasks(new):
        yield f"I2 at {change.revision} a write of ours changed eviction tasks of others {where}"
    if _conditions(old) != _conditions(new) and (after.clusters or not after.suspended):
        yield f"I2 at {change.revision} a write of ours changed conditions {where}, which is not evicted"
    if foreign := (_excluded(old) ^ _excluded(new)) - _excluded_for_data(old) - _excluded_for_data(new):
        yield f"I2 at {change.revision} a write of ours changed the exclusion of {', '.join(sorted(foreign))} {where}"


def _foreign_tasks(binding: Mapping[str, Any]) -> list[Any]:
    tasks = binding.get("spec", {}).get("gracefulEvictionTasks") or ()
    return [task for task in tasks if task.get("producer") != _PRODUCER]


def _conditions(binding: Mapping[str, Any]) -> Any:
    return binding.get("status", {}).get("conditions")


def _excluded(binding: Mapping[str, Any]) -> set[str]:
    """Return the clusters that the placement excludes."""
    placement = binding.get("spec", {}).get("placement") or {}
    return {*((placement.get("clusterAffinity") or {}).get("exclude") or ())}


def _excluded_for_data(binding: Mapping[str, Any]) -> set[str]:
    """Return the clusters that the placement excludes for their lack of data (C6)."""
    names = (binding.get("metadata", {}).get("annotations") or {}).get(DATA_EXCLUDED_ANNOTATION, "")
    return {*names.split(",")}


def _overwritten_status(usage: ObservedUsage, change: Change) -> Iterator[str]:
    """I2: the status of a job that its clusters have reported since its admission is not written."""
    namespace, name = change.key
    binding = usage.bindings.get((namespace, f"{name}-job"))
    old, new = _flat(change.before), _flat(change.after)
    phase = old.get(("status", "state", "phase"), "Pending")
    is_written = phase != "Pending" or any(old.get(number) != new.get(number) for number in _POD_NUMBERS)
    if is_written and binding is not None and not binding.suspended:
        yield f"I2 at {change.revision} the status of job {namespace}/{name} was written, which its cluster reports"


def _flat(obj: Mapping[str, Any] | None) -> dict[tuple[str, ...], Any]:
    """Return the leaves of *obj* by path; a list is a leaf."""
    leaves: dict[tuple[str, ...], Any] = {}
    rest: list[tuple[tuple[str, ...], Any]] = [((), obj or {})]
    while rest:
        path, value = rest.pop()
        if isinstance(value, dict) and value:
            rest.extend(((*path, key), member) for key, member in value.items() if key not in _TRACES)
        elif path:
            leaves[path] = value
    return leaves


def _no_op_writes(evidence: Evidence) -> Iterator[str]:
    """I7: every successful write has created a new revision; the audit log may be ahead of the changes."""
    made = {change.revision for change in evidence.changes}
    latest = max(made, default=0)
    seen: set[int] = set()
    for request in evidence.requests:
        if request.done and request.revision:
            if request.revision in seen or (request.revision not in made and request.revision <= latest):
                yield f"I7 {request.verb} of {request.resource} {request.namespace}/{request.name} changed nothing"
            seen.add(request.revision)


def immediate_retries(requests: Iterable[Request]) -> Iterator[str]:
    """I7: rejected writes are not retried immediately; an object whose deletion was rejected may be created."""
    last: dict[tuple[str, str, str, str], Request] = {}
    for request in sorted(requests, key=lambda request: request.at):
        before = last.get(request.target)
        is_retry = before is not None and not before.done and before.verb == request.verb
        if is_retry and (request.at - before.at).total_seconds() < MIN_RETRY_DELAY:
            yield f"I7 {request.namespace}/{request.name} was tried again at once after {before.status}"
        last[request.target] = request
