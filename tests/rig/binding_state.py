"""State of a binding for invariant checks, parsed independently of the controller."""

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tests.rig.history import Key

RECORD = "volcano-global.io/admission"
DEPLOYMENT = ("apps", "Deployment")
BATCH_JOB = ("batch", "Job")
GATED = {("batch.volcano.sh", "Job"), DEPLOYMENT, BATCH_JOB}
_OVER = {"Completed", "Failed", "Terminated"}
_ENDS_OF_BATCH_JOBS = {"Complete", "Failed"}
_CLAIMS = ("propagationpolicy.karmada.io/permanent-id", "clusterpropagationpolicy.karmada.io/permanent-id")


@dataclass(frozen=True, slots=True)
class BindingState:
    """State of a binding at one revision."""

    uid: str
    job: Key
    gated: bool
    suspended: bool
    dispatch_suspended: bool
    has_policy: bool
    is_terminating: bool
    clusters: tuple[str, ...]
    """Its clusters, each once; of a Deployment once for each of its replicas there."""
    record: dict[str, Any]
    """Admission record for this binding's uid, otherwise empty."""
    listed: tuple[str, ...] = ()
    """The clusters in its status, and those that it is being evicted from."""
    leaving: tuple[str, ...] = ()
    """The clusters that it is being evicted from; of a Deployment each once for each of its replicas there."""
    ended: tuple[str, ...] = ()
    """The clusters in which its status says that it has ended."""
    running: tuple[str, ...] = ()
    """The clusters in which its status says that it runs."""
    silent: tuple[str, ...] = ()
    """The clusters of which its status has no phase, or of a Deployment nothing, because they refuse its Work."""
    is_volcano_job: bool = True
    is_divided: bool = False
    """Whether it is of a Deployment, whose replicas Karmada divides."""
    copies: int = 1
    """How often its template runs while the number of its clusters is not known; of a Deployment its replicas."""
    goes_to_several: bool = False
    """Whether its placement allows copies in several clusters."""
    affinity: dict[str, Any] = field(default_factory=dict)
    """The affinity to clusters in its placement, empty for all clusters."""
    scheduled_at: float = 0
    """When Karmada has scheduled it last, in seconds."""

    def may_run_on(self, cluster: str) -> bool:
        """Return whether its placement certainly allows *cluster* alone; of its affinities only names are read."""
        rules = {name: value for name, value in self.affinity.items() if value}
        if self.goes_to_several or not rules.keys() <= {"clusterNames", "exclude"}:
            return False
        return cluster in rules.get("clusterNames", [cluster]) and cluster not in rules.get("exclude", ())

    def __str__(self) -> str:
        state = "over" if self.is_finished else "admitted" if self.admitted else "paused" if self.suspended else "loose"
        return f"{state} on {','.join(self.clusters)}" if self.clusters else state

    @property
    def admitted(self) -> bool:
        """Return whether it was resumed with an admission record."""
        return not self.suspended and bool(self.record.get("charge"))

    def recorded_at(self, field_name: str) -> float | None:
        """Return a time of its record in seconds, ``None`` where it has none that can be read."""
        return _seconds(self.record.get(field_name))

    @property
    def moved_at(self) -> float:
        """Return when Karmada has moved it from the clusters of its admission, 0 if it has not."""
        admitted_to = self.record.get("clusters") or [*self.clusters]
        is_moved = {*self.clusters} != {*admitted_to}
        return self.recorded_at("clustersChangedAt") or (self.scheduled_at if is_moved else 0)

    def is_admitted_since(self, before: "BindingState | None") -> bool:
        """Return whether it was admitted after *before*; one that only Karmada was to schedule again was not (R1)."""
        if not self.admitted or not self.holds:
            return False
        if before is None or before.uid != self.uid:
            return True
        was_charged = before.record.get("charge") and before.record.get("admittedAt") == self.record.get("admittedAt")
        return not before.admitted and not was_charged

    @property
    def is_finished(self) -> bool:
        """Return whether it has ended in each of its clusters, or in those that Karmada has taken it from since."""
        clusters = self.clusters or (() if self.suspended else self.leaving)
        return bool(clusters) and {*clusters} <= {*self.ended}

    @property
    def holds(self) -> bool:
        """Return whether it uses capacity: it runs or may start at any time.

        A Deployment of which no cluster was assigned a replica uses none until Karmada assigns one (C4).
        """
        is_assigned = not self.is_divided or bool(self.record.get("clusters"))
        return not self.is_finished and (bool(self.clusters) or (self.admitted and self.has_policy and is_assigned))


def observe(before: BindingState | None, binding: dict[str, Any]) -> BindingState:
    """Parse *binding*, which was *before*: in a cluster that is silent its phase stays."""
    after = parse_binding(binding)
    if before is None or before.uid != after.uid or not after.silent:
        return after
    ended, running = (
        (*now, *(name for name in earlier if name in after.silent and name in after.clusters))
        for earlier, now in ((before.ended, after.ended), (before.running, after.running))
    )
    return replace(after, ended=ended, running=running)


_PARSED: dict[int, tuple[dict[str, Any], BindingState]] = {}
"""States by the identity of the binding, which is stored with it so that no other object has the same."""
_MOST_PARSED = 4096


def parse_binding(binding: dict[str, Any]) -> BindingState:
    """Parse *binding*, which must not change later, once."""
    known = _PARSED.get(id(binding))
    if known is None or known[0] is not binding:
        if len(_PARSED) >= _MOST_PARSED:
            _PARSED.clear()
        known = _PARSED[id(binding)] = binding, _parse(binding)
    return known[1]


def _parse(binding: dict[str, Any]) -> BindingState:
    meta, spec = binding["metadata"], binding["spec"]
    group = spec["resource"]["apiVersion"].rpartition("/")[0]
    kind = group, spec["resource"]["kind"]
    targets, is_divided = spec.get("clusters") or (), kind == DEPLOYMENT
    clusters = tuple(
        target["name"] for target in targets for _ in range(target.get("replicas", 0) if is_divided else 1)
    )
    leaving = tuple(
        task["fromCluster"]
        for task in spec.get("gracefulEvictionTasks") or ()
        for _ in range(task.get("replicas", 0) if is_divided else 1)
    )
    items = binding.get("status", {}).get("aggregatedStatus") or ()
    phases = {item["clusterName"]: _phase(item) for item in items}
    return BindingState(
        uid=meta["uid"],
        job=(spec["resource"].get("namespace", ""), spec["resource"]["name"]),
        gated=kind in GATED,
        suspended=(spec.get("suspension") or {}).get("scheduling") is True,
        dispatch_suspended=(spec.get("suspension") or {}).get("dispatching") is True,
        has_policy=any(claim in meta.get("labels", {}) for claim in _CLAIMS),
        is_terminating="deletionTimestamp" in meta,
        clusters=clusters,
        record=_record(meta),
        listed=(*phases, *(task["fromCluster"] for task in spec.get("gracefulEvictionTasks") or ())),
        leaving=leaving,
        ended=tuple(name for name, phase in phases.items() if phase in _OVER),
        running=tuple(name for name, phase in phases.items() if phase == "Running"),
        is_volcano_job=kind == ("batch.volcano.sh", "Job"),
        is_divided=is_divided,
        copies=spec.get("replicas", 0) if is_divided else 1,
        silent=tuple(item["clusterName"] for item in items if not (item.get("status") if is_divided else _phase(item))),
        goes_to_several=any(
            constraint.get("maxGroups", 1) > 1
            for constraint in (spec.get("placement") or {}).get("spreadConstraints") or ()
        ),
        affinity=_affinity(spec.get("placement") or {}),
        scheduled_at=_seconds(binding.get("status", {}).get("lastScheduledTime")) or 0,
    )


def _affinity(placement: dict[str, Any]) -> dict[str, Any]:
    """Return the affinity of *placement*; several ones, in an order, are returned as they are."""
    terms = placement.get("clusterAffinities")
    return {"clusterAffinities": terms} if terms else placement.get("clusterAffinity") or {}


def _phase(item: dict[str, Any]) -> str:
    status = item.get("status") or {}
    true = {condition["type"] for condition in status.get("conditions") or () if condition["status"] == "True"}
    running = "Running" if status.get("active") else ""
    return str((status.get("state") or {}).get("phase", "Completed" if true & _ENDS_OF_BATCH_JOBS else running))


def _seconds(time: Any) -> float | None:
    try:
        return datetime.fromisoformat(time).timestamp()
    except (TypeError, ValueError):
        return None


def _record(meta: dict[str, Any]) -> dict[str, Any]:
    try:
        record = json.loads(meta.get("annotations", {}).get(RECORD, "{}"))
    except ValueError:
        return {}
    return record if isinstance(record, dict) and record.get("uid") == meta["uid"] else {}
