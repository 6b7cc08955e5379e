"""Builds one flat record for each decision, the same in the process's log, the decision log and its replay.

``docs/operations/decision-log.md`` describes the fields. Values are copied from the state at once; texts and
quantities are formatted when the record is written.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Literal

import msgspec

from controller.api.quantity import format_quantity
from controller.engine.engine import Engine
from controller.engine.plan import Admit, Evict, Plan, RecordUpdate, Wait
from controller.engine.reasons import EXCEEDS_WHEN_EMPTY, RULES, EvictionReason, Reason, Refusal, is_advance_reservation
from controller.engine.state.clusters import Assignment
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.resources import EMPTY, Resources, add
from controller.engine.state.workloads import ClusterCharge, Workload
from controller.reporting.messages import EVICTION_MESSAGES, pending_message

Fields = dict[str, Any]
Action = Literal["Admit", "Evict", "Wait", "Keep", "Requeue"]


class Utilization(msgspec.Struct, frozen=True):
    """Usage and limit of a queue or cluster after the plan."""

    subject: str
    used: Resources
    limit: Mapping[str, int | Fraction]
    resource: str | None = None
    """The only resource to report; all requested ones if ``None``."""


class DecisionRecord(msgspec.Struct, frozen=True):
    """A decision about one workload."""

    action: Action
    workload: Workload
    request: Resources
    rule: str
    reason: Reason | EvictionReason | None = None
    utilization: Utilization | None = None
    refusal: Refusal | None = None
    position: int | None = None
    assignments: tuple[Assignment, ...] = ()
    cluster_charges: tuple[ClusterCharge, ...] = ()
    extra: tuple[tuple[str, str | int], ...] = ()
    """Further fields by name, which only some decisions have."""
    message: str = ""
    """Why it is evicted, where that is not the message of the reason."""


class RecordBuilder:
    """Builds records from the state after a plan."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._utilizations: dict[tuple[str, str], Utilization | None] = {}

    def plan_records(self, plan: Plan) -> list[DecisionRecord]:
        """Return the records of admissions, evictions, nominations, reservations and requeues."""
        decided = [self._admit(item) if isinstance(item, Admit) else self._evict(item) for item in plan.decisions]
        updates = [_update_record(update, self._request(update.workload)) for update in plan.record_updates]
        return [*decided, *updates, *map(_requeue_record, plan.reschedules)]

    def pending_records(self, waits: Iterable[Wait]) -> list[DecisionRecord]:
        """Return the records of pending workloads with a changed reason."""
        return [self.pending_record(wait.workload, wait.refusal, wait.position) for wait in waits]

    def pending_record(self, workload: Workload, refusal: Refusal, position: int) -> DecisionRecord:
        """Return the record of one pending workload."""
        return DecisionRecord(
            "Wait",
            workload,
            self._request(workload),
            _rule(refusal),
            refusal.reason,
            self._utilization(workload, refusal),
            refusal,
            position,
        )

    def _admit(self, decision: Admit) -> DecisionRecord:
        workload, admission = decision.workload, decision.admission
        extra: list[tuple[str, str | int]] = [("admittedAt", admission.admitted_at)]
        if decision.plan_id:
            extra.append(("group", decision.plan_id))
        return DecisionRecord(
            "Admit",
            workload,
            admission.charge,
            _admission_rule(decision),
            utilization=self._queue_utilization(workload.queue),
            assignments=decision.clusters,
            cluster_charges=admission.cluster_charges,
            extra=tuple(extra),
        )

    def _evict(self, decision: Evict) -> DecisionRecord:
        workload, admission = decision.workload, decision.workload.admission
        is_reclaimed = decision.reason is EvictionReason.RECLAIMED
        extra: list[tuple[str, str | int]] = [("graceMs", decision.grace_ms)]
        if decision.preemptor is not None:
            extra.append(("forWhom", decision.preemptor))
        if decision.nominated_cluster is not None:
            extra.append(("nominatedCluster", decision.nominated_cluster))
        if decision.back_off is not None:
            extra += [
                ("until", decision.back_off.until),
                ("excludedClusters", ",".join(decision.back_off.excluded_clusters)),
            ]
        return DecisionRecord(
            "Evict",
            workload,
            admission.charge if admission else EMPTY,
            RULES[decision.reason],
            decision.reason,
            self._fair_share_utilization(workload.queue) if is_reclaimed else self._queue_utilization(workload.queue),
            cluster_charges=workload.cluster_charges,
            extra=tuple(extra),
            message=decision.back_off.message if decision.back_off is not None else "",
        )

    def _request(self, workload: Workload) -> Resources:
        """Return the total charge of a pending workload, or its requests for one copy if it was not evaluated."""
        pending = self._engine.pending
        charge = pending.class_of(workload.uid).charge if workload.uid in pending else EMPTY
        return charge or workload.requirements.requests

    def _utilization(self, workload: Workload, refusal: Refusal) -> Utilization | None:
        if refusal.reason in EXCEEDS_WHEN_EMPTY:
            place = f"cluster {refusal.cluster}" if refusal.cluster else f"queue {refusal.queue}"
            resource = refusal.resource or ""
            return Utilization(place, EMPTY, {resource: refusal.available or 0}, resource=resource)
        if refusal.reason is Reason.BLOCKED_BY_FAIR_SHARE:
            return self._fair_share_utilization(workload.queue)
        if refusal.cluster is not None:
            return self._cached_utilization("cluster", refusal.cluster)
        return self._queue_utilization(QueueName(refusal.queue or workload.queue))

    def _queue_utilization(self, name: QueueName) -> Utilization | None:
        return self._cached_utilization("queue", name)

    def _fair_share_utilization(self, name: QueueName) -> Utilization | None:
        return self._cached_utilization("fair share", name)

    def _cached_utilization(self, kind: str, name: str) -> Utilization | None:
        """Return the utilization of a queue or cluster; cached, because many workloads share it."""
        if (kind, name) not in self._utilizations:
            utilization = self._cluster(name) if kind == "cluster" else self._queue(QueueName(name), kind)
            self._utilizations[kind, name] = utilization
        return self._utilizations[kind, name]

    def _cluster(self, name: str) -> Utilization | None:
        for cluster in self._engine.cluster_usage:
            if cluster.name == name:
                used = dict(add(cluster.charged, cluster.external_usage))
                return Utilization(f"cluster {name}", used, dict(cluster.allocatable))
        return None

    def _queue(self, name: QueueName, kind: str) -> Utilization | None:
        quota, queue_shares = self._engine.current_quota, self._engine.queue_shares
        if quota is None or queue_shares is None or name not in quota.tree.nodes:
            return None
        used = dict(quota.allocated[name])
        if kind == "fair share":
            return Utilization(f"fair share of queue {name}", used, dict(queue_shares.fair_shares[name]))
        return Utilization(f"queue {name}", used, dict(quota.limits[name].limit))


def _rule(refusal: Refusal) -> str:
    """Return the rule behind *refusal*: the root's limit is a rule about queues (Q2), a cluster's is not (C2)."""
    if is_advance_reservation(refusal):
        return RULES[EvictionReason.ADVANCE_RESERVATION]
    return RULES[Reason.QUEUE_LIMIT_REACHED if refusal.is_total_capacity else refusal.reason]


def _requeue_record(workload: Workload) -> DecisionRecord:
    charge = workload.admission.charge if workload.admission else EMPTY
    return DecisionRecord("Requeue", workload, charge, "R1", cluster_charges=workload.cluster_charges)


def _update_record(update: RecordUpdate, request: Resources) -> DecisionRecord:
    """Return the record of a nomination or a reservation that has begun or ended."""
    nomination, reservation = update.nomination, update.reservation
    extra: list[tuple[str, str | int]] = []
    if nomination is not None:
        extra = [
            ("nominatedCluster", nomination.cluster),
            ("nominatedAt", nomination.since),
            ("nominationRank", nomination.rank),
        ]
    elif reservation is not None:
        clusters = ", ".join(charge.cluster for charge in reservation.cluster_charges)
        extra = [("reservedSince", reservation.since), ("reservedCluster", clusters)]
    is_nomination = nomination is not None or update.workload.nomination is not None
    return DecisionRecord("Keep", update.workload, request, "P5" if is_nomination else "O6", extra=tuple(extra))


def update_message(rule: str, *, nominated_cluster: str, reserved_since: int | None, reserved_cluster: str) -> str:
    """Return which nomination or reservation a recorded decision of the action `Keep` begins or ends."""
    if nominated_cluster:
        return f"nominated to {nominated_cluster}"
    if reserved_since is not None:
        return f"reserved on {reserved_cluster}" if reserved_cluster else "reserved"
    return "nomination ended" if rule == "P5" else "reservation ended"


def _admission_rule(decision: Admit) -> str:
    """Return the rule of an admission: with its HyperJob, after evictions, divided, or on one cluster."""
    if decision.plan_id:
        return "G1"
    if decision.workload.nomination is not None:
        return "P5"
    return "C4" if decision.workload.requirements.replicas else "C3"


def record_fields(record: DecisionRecord, plan: int, revision: str) -> Fields:
    """Return *record* as JSON fields, for this plan and revision of the configuration."""
    workload, request = record.workload, _format_requests(record.request)
    values: Fields = {
        "action": record.action,
        "uid": workload.uid,
        "kind": workload.kind,
        "namespace": workload.namespace,
        "name": workload.name,
        "queue": workload.queue,
        "request": request,
        **_utilization_fields(record, request),
        "rule": record.rule,
        "reason": record.reason.value if record.reason else None,
        "message": _record_message(record),
        "position": record.position,
        "clusters": _cluster_fields(record),
        "revision": revision,
        "plan": plan,
    }
    if record.refusal is not None:
        values["facts"] = _refusal_facts(record.refusal)
    return values | dict(record.extra)


def _format_requests(amounts: Mapping[str, int | Fraction]) -> dict[str, str]:
    return {name: format_quantity(name, amounts[name]) for name in sorted(amounts) if amounts[name] > 0}


def _utilization_fields(record: DecisionRecord, request: Mapping[str, str]) -> Fields:
    """Return usage and limit of the requested resources."""
    utilization = record.utilization
    if utilization is None:
        return {"of": None, "used": {}, "limit": {}}
    names = [name for name in request if utilization.resource in {None, name}]
    used = {name: format_quantity(name, utilization.used.get(name, 0)) for name in names}
    limit = {name: format_quantity(name, utilization.limit.get(name, 0)) for name in names}
    return {"of": utilization.subject, "used": used, "limit": limit}


def _record_message(record: DecisionRecord) -> str:
    if record.refusal is not None:
        return pending_message(record.refusal)
    if record.message or not isinstance(record.reason, EvictionReason):
        return record.message
    return EVICTION_MESSAGES[record.reason]


def _cluster_fields(record: DecisionRecord) -> list[Fields]:
    replicas = {target.name: target.replicas for target in record.assignments}
    if not record.cluster_charges:
        return [{"name": name, "replicas": count, "charge": {}} for name, count in replicas.items()]
    return [
        {"name": part.cluster, "replicas": replicas.get(part.cluster), "charge": _format_requests(part.charge)}
        for part in record.cluster_charges
    ]


def _refusal_facts(refusal: Refusal) -> Fields:
    resource = refusal.resource or ""
    facts: Fields = {
        "resource": refusal.resource,
        "asked": None if refusal.asked is None else format_quantity(resource, refusal.asked),
        "available": None if refusal.available is None else format_quantity(resource, refusal.available),
        "queue": refusal.queue,
        "cluster": refusal.cluster,
        "subject": refusal.subject,
        "until": refusal.until,
    }
    return {name: value for name, value in facts.items() if value is not None}
