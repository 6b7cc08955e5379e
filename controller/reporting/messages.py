"""Turns reasons and their facts into messages for people.

Command line, events, log and metrics use the same codes; no other module words them.
"""

from collections.abc import Iterator, Mapping

from controller.api.quantity import format_quantity
from controller.cache.objects import BindingCondition
from controller.cache.translate.units import format_time
from controller.engine.placement.fit import NODES_FULL
from controller.engine.reasons import (
    ADVANCE_RESERVATION,
    ENDED_BY_CAPACITY,
    EXCEEDS_WHEN_EMPTY,
    NEW_WORKLOADS,
    EvictionReason,
    Reason,
    Refusal,
    is_advance_reservation,
    lacks_clusters,
)
from controller.engine.remedies import Change, Remedy
from controller.engine.shortfalls import Shortfall
from controller.engine.state.hierarchy import ROOT

#: The message of each pending reason; facts are fields.
PENDING_MESSAGES: Mapping[Reason, str] = {
    Reason.QUEUE_NOT_FOUND: "queue '{queue}' does not exist",
    Reason.QUEUE_CLOSED: "queue '{queue}' is {subject} and accepts no new workloads",
    Reason.QUEUE_NOT_LEAF: "queue '{queue}' has child queues; only a leaf queue accepts workloads",
    Reason.QUEUE_HIERARCHY_INVALID: "queue '{queue}' is not connected to the root queue: {subject}",
    Reason.QUEUE_NOT_ALLOWED: "namespace '{subject}' may not use queue '{queue}'",
    Reason.PRIORITY_CLASS_NOT_ALLOWED: "PriorityClass '{subject}' may not be used by this namespace",
    Reason.EXCEEDS_QUEUE_LIMIT: "it requests {asked} {resource}, queue '{queue}' may use at most {available}",
    Reason.EXCEEDS_TOTAL_CAPACITY: (
        "it requests {asked} {resource}, all clusters together have no more than {available}"
    ),
    Reason.QUEUE_LIMIT_REACHED: "it requests {asked} {resource}, queue '{queue}' has {available} left below its limit",
    Reason.BLOCKED_BY_GUARANTEE: (
        "it requests {asked} {resource}, but only {available} of queue '{queue}' are not reserved for guarantees"
    ),
    Reason.BLOCKED_BY_RESERVATION: "the capacity is reserved for {subject}, which has been blocked for long",
    Reason.BLOCKED_BY_QUEUE_HEAD: "queue '{queue}' is strict FIFO, and {subject} is ahead of it",
    Reason.INSUFFICIENT_CAPACITY: (
        "no candidate cluster has enough free capacity; "
        "'{cluster}' comes closest with {available} {resource} of {asked}"
    ),
    Reason.EXCEEDS_EVERY_CLUSTER: (
        "it does not fit on any cluster, even an empty one; "
        "'{cluster}' comes closest with {available} {resource} of {asked}"
    ),
    Reason.NO_MATCHING_CLUSTER: "no cluster matches its placement ({subject})",
    Reason.BLOCKED_BY_FAIR_SHARE: "it would borrow {resource} from the fair share of queues with pending workloads",
    Reason.HYPERJOB_INCOMPLETE: "not enough parts of its HyperJob can start: {subject}",
    Reason.HYPERJOB_DOES_NOT_FIT: "part {subject} of its HyperJob does not fit",
    Reason.PREEMPTION_IN_PROGRESS: "its victims are terminating, and it will start on '{cluster}'",
    Reason.STARTUP_BACKOFF: "its next attempt is delayed: {subject}",
    Reason.SUSPENDED: "its policy suspends dispatching",
    Reason.ABORTED: "it was aborted",
    Reason.NO_MATCHING_POLICY: "no PropagationPolicy selects it",
    Reason.REQUESTS_UNKNOWN: "its requests are not known: {subject}",
    Reason.DATA_NOT_READY: "its data are not ready: {subject}",
    Reason.INTERNAL_ERROR: "evaluating it failed with an internal error: {subject}",
}

_OWN_EVICTION = "it was evicted and is still terminating on its clusters"
_OWN_EVICTION_REMEDY = "it competes for capacity again after its termination"

#: Messages for the root queue, which users do not create and may not know.
ROOT_QUEUE_MESSAGES: Mapping[Reason, str] = {
    Reason.INSUFFICIENT_CAPACITY: "it requests {asked} {resource}, all usable clusters together have {available} left",
    Reason.BLOCKED_BY_GUARANTEE: (
        "it requests {asked} {resource}, but only {available} of all clusters together are not reserved for guarantees"
    ),
}

_TOTAL_CAPACITY_REMEDY = "ask for less, split it, or add clusters"

#: What ends each pending reason.
REMEDIES: Mapping[Reason, str] = {
    Reason.QUEUE_NOT_FOUND: "create the queue, or create the job again in another",
    Reason.QUEUE_CLOSED: "open the queue, or submit to another",
    Reason.QUEUE_NOT_LEAF: "create the job again in one of its child queues",
    Reason.QUEUE_HIERARCHY_INVALID: "correct the parents of the queue",
    Reason.QUEUE_NOT_ALLOWED: "use a queue of this namespace's tenant, or change `tenants` in the configuration",
    Reason.PRIORITY_CLASS_NOT_ALLOWED: "use another class, or change `tenants` in the configuration",
    Reason.EXCEEDS_QUEUE_LIMIT: "ask for less, raise the queue's capability, or lower guarantees of other queues",
    Reason.EXCEEDS_TOTAL_CAPACITY: _TOTAL_CAPACITY_REMEDY,
    Reason.QUEUE_LIMIT_REACHED: "it starts when workloads of the queue finish",
    Reason.BLOCKED_BY_GUARANTEE: "it starts when workloads beyond their queue's guarantee finish",
    Reason.BLOCKED_BY_RESERVATION: "it starts after that workload, or when the reservation expires",
    Reason.BLOCKED_BY_QUEUE_HEAD: "it starts after that workload",
    Reason.INSUFFICIENT_CAPACITY: "it starts when workloads on its candidate clusters finish",
    Reason.EXCEEDS_EVERY_CLUSTER: "ask for less, split it, or add a larger cluster",
    Reason.NO_MATCHING_CLUSTER: "change the placement of its policy, or label, untaint or add a cluster",
    Reason.BLOCKED_BY_FAIR_SHARE: "it starts when those workloads are admitted",
    Reason.HYPERJOB_INCOMPLETE: "it starts when the other parts exist and their backoff has ended",
    Reason.HYPERJOB_DOES_NOT_FIT: (
        "it starts when enough of its parts fit; where they never do, lower minAvailable or split it in another way"
    ),
    Reason.PREEMPTION_IN_PROGRESS: "it starts when they have terminated",
    Reason.STARTUP_BACKOFF: "it is retried automatically",
    Reason.SUSPENDED: "remove spec.suspension from its PropagationPolicy",
    Reason.ABORTED: "resume it (vcctl job resume) or change its template",
    Reason.NO_MATCHING_POLICY: "create a policy that selects it",
    Reason.REQUESTS_UNKNOWN: "correct its template",
    Reason.DATA_NOT_READY: "it starts when the DataSourceClaim is bound; the plugin is asked again by itself",
    Reason.INTERNAL_ERROR: "it is retried within a minute; report the error in the controller's log",
}

_OWN_SUSPENSION = "its {subject} is true"

#: Why a workload is pending where an advance reservation needs all of its clusters (O11).
_RESERVED_IN_ADVANCE = "its clusters are kept free for {subject}, and it is not expected to end before that begins"
_AMOUNTS_RESERVED_IN_ADVANCE = (
    "it requests {asked} {resource}, but only {available} of '{cluster}' are not kept free for {subject}, and it is "
    "not expected to end before that begins"
)
#: The message of each eviction reason.
EVICTION_MESSAGES: Mapping[EvictionReason, str] = {
    EvictionReason.RECLAIMED: "its queue had borrowed from the fair share of another queue",
    EvictionReason.PREEMPTED: "preempted by a workload of its queue with a higher priority",
    EvictionReason.RESIZE_REJECTED: "it requests more than its admitted charge, and that does not fit",
    EvictionReason.STARTUP_TIMEOUT: "it did not start in time",
    EvictionReason.CLUSTER_CHANGED: "it was moved to a cluster where it does not fit",
    EvictionReason.DATA_MOVED: "its data moved to other clusters, and its DataSourceClaim requests that it follows",
    EvictionReason.BACKFILL_OVERRUN: "it uses capacity reserved for another workload longer than expected",
    EvictionReason.ADVANCE_RESERVATION: "an advance reservation of its cluster has begun",
    EvictionReason.ABORTED: "it was aborted",
}

#: Appended if it is known which resource one part of a HyperJob lacks.
_PART_SHORTAGE = ": it requests {asked} {resource}, {available} are left"
#: The warning for each binding condition that may need an action.
BINDING_WARNINGS: Mapping[BindingCondition, str] = {
    BindingCondition.NOT_SUSPENDED: "it was neither suspended nor admitted: it bypassed the webhook",
    BindingCondition.PLACED_WITHOUT_ADMISSION: "another client placed it without admission; its clusters are removed",
    BindingCondition.RESUMED_BY_OTHERS: (
        "another client resumed it without admission; it is charged where it runs and is never evicted"
    ),
    BindingCondition.RESUSPENDED_AFTER_ADMISSION: (
        "another client suspended it after its admission; it is resumed, because it still has its clusters"
    ),
    BindingCondition.EVICTED_BY_OTHERS: (
        "another client suspended it and removed its clusters after its admission; it is pending again"
    ),
    BindingCondition.MOVED: (
        "another client changed its clusters from {before} to {after} after its admission; its charge is updated"
    ),
    BindingCondition.RESIZED: "it requests more than its admitted charge",
    BindingCondition.INVALID_RECORD: (
        "its annotation volcano-global.io/admission is not a valid admission record and is ignored"
    ),
    BindingCondition.UNREADABLE: "a field of it, or of its binding, cannot be read",
    BindingCondition.PLACED_ON_ALL_CLUSTERS: (
        "its policy does not limit it to one cluster: Karmada would copy all of it to every candidate cluster, "
        "and each copy is charged; add spreadConstraints [{spreadByField: cluster, minGroups: 1, maxGroups: 1}]"
    ),
    BindingCondition.WORK_NOT_APPLIED: (
        "a cluster does not accept it, or its last change, and Karmada reports no status from there meanwhile; what "
        "was reported before still counts: {refusals}"
    ),
    BindingCondition.APPLICATION_FAILOVER: (
        "its policy sets failover.application: Karmada treats a failed job as unhealthy and recreates it on another "
        "cluster repeatedly, and each run is charged; remove it and set maxRetry in the job"
    ),
    BindingCondition.RESOURCES_PRESERVED: (
        "its policy sets preserveResourcesOnDeletion, so clearing its clusters would not stop it"
    ),
}
#: The warning for a job whose binding would have the name of another binding.
NAME_COLLISION = (
    "binding '{binding}' belongs to {kind} {name} of {version}, for which Karmada generates the same name; "
    "rename one of them"
)

#: Reasons whose remedy may leave other shortages.
_INCOMPLETE_REMEDIES = ENDED_BY_CAPACITY | {Reason.HYPERJOB_DOES_NOT_FIT}
#: Appended to a remedy where a list of all shortages is not available.
NOT_INCLUDED = "other shortages are not included"
_LACKING_CLUSTERS_REMEDY = f"it starts when more of its candidate clusters accept {NEW_WORKLOADS}"
_NODE_MESSAGES = {
    Reason.INSUFFICIENT_CAPACITY: "no candidate cluster has a node for each of its pods",
    Reason.EXCEEDS_EVERY_CLUSTER: "its gang does not fit on the nodes of any cluster, even empty ones",
}


def pending_message(refusal: Refusal) -> str:
    """Return why a workload is pending; lower case, without a full stop."""
    if refusal.reason is Reason.PREEMPTION_IN_PROGRESS and refusal.cluster is None:
        return _OWN_EVICTION
    if refusal.resource is None and refusal.reason in _NODE_MESSAGES:
        if refusal.cluster is None:
            return refusal.subject or f"none of its candidate clusters that can hold it accepts {NEW_WORKLOADS}"
        if refusal.subject == NODES_FULL:
            nodes = f"the nodes of '{refusal.cluster}'"
            return f"{nodes} have no free capacity for its gang, according to its scheduler estimator"
        return _NODE_MESSAGES[refusal.reason]
    if refusal.reason is Reason.QUEUE_NOT_FOUND and not refusal.queue:
        return "its queue is not known: its object does not exist or cannot be read"
    facts = {
        "resource": refusal.resource,
        "asked": _format_amount(refusal, refusal.asked),
        "available": _format_amount(refusal, max(refusal.available or 0, 0)),
        "queue": refusal.queue,
        "cluster": refusal.cluster,
        "subject": refusal.subject or "unknown",
    }
    special = ROOT_QUEUE_MESSAGES.get(refusal.reason) if refusal.queue == ROOT else None
    if refusal.reason is Reason.SUSPENDED and refusal.subject:
        special = _OWN_SUSPENSION
    if is_advance_reservation(refusal):
        name = (refusal.subject or "").removeprefix(ADVANCE_RESERVATION)
        facts["subject"] = f"advance reservation '{name}'" if name else "an advance reservation"
        special = _RESERVED_IN_ADVANCE if refusal.resource is None else _AMOUNTS_RESERVED_IN_ADVANCE
    is_part_short = refusal.reason is Reason.HYPERJOB_DOES_NOT_FIT and refusal.resource is not None
    return ((special or PENDING_MESSAGES[refusal.reason]) + (_PART_SHORTAGE if is_part_short else "")).format_map(facts)


def remedy_message(refusal: Refusal, more: str = "`volcano-global explain job` lists all shortages") -> str:
    """Return what ends this reason, and *more* where other shortages are possible; lower case, without a full stop."""
    return _remedy_for(refusal) + (f"; {more}" if refusal.reason in _INCOMPLETE_REMEDIES else "")


def _remedy_for(refusal: Refusal) -> str:
    if refusal.reason is Reason.PREEMPTION_IN_PROGRESS and refusal.cluster is None:
        return _OWN_EVICTION_REMEDY
    if refusal.queue == ROOT and refusal.reason in ROOT_QUEUE_MESSAGES:
        return "it starts when workloads finish"
    if refusal.reason is Reason.QUEUE_NOT_FOUND and not refusal.queue:
        return "check that the controller may read objects of its kind"
    if is_advance_reservation(refusal):
        return (
            "it starts when the reservation ends; earlier in other clusters, or with a runningEstimate that ends "
            "before the reservation begins"
        )
    if refusal.reason is Reason.STARTUP_BACKOFF and refusal.until is not None:
        # Rounded up to a second.
        return f"it is retried automatically after {format_time(refusal.until + 999)}"
    is_own = refusal.reason is Reason.SUSPENDED and refusal.subject
    remedy = _LACKING_CLUSTERS_REMEDY if lacks_clusters(refusal) else REMEDIES[refusal.reason]
    return f"set {refusal.subject} to false" if is_own else remedy


def verified_remedy(refusal: Refusal, remedy: Remedy | None) -> str:
    """Return the remedy that the engine found for a workload, with what it does not include.

    Without one, return what ends the reason alone.
    """
    if remedy is None:
        is_sure = refusal.reason is Reason.PREEMPTION_IN_PROGRESS or refusal.until is not None
        return _remedy_for(refusal) + ("" if is_sure else f"; {NOT_INCLUDED}")
    changes = " and ".join(_describe_changes(remedy.changes)) or "nothing is missing when it is first in its queue"
    return changes if remedy.is_complete else f"{changes}; not included: {_excluded_from_remedy(remedy)}"


def _describe_changes(changes: tuple[Change, ...]) -> Iterator[str]:
    for change in changes:
        before, after = (format_quantity(change.resource, amount) for amount in (change.before, change.after))
        if change.kind == "queue":
            yield f"raise capability of queue '{change.name}' from {before} to {after} {change.resource}"
        else:
            added = format_quantity(change.resource, change.after - change.before)
            yield f"add {added} {change.resource} to cluster '{change.name}' ({before} allocatable)"


def _excluded_from_remedy(remedy: Remedy) -> str:
    """Return what a remedy does not include: usage of workloads ahead, or another reason of the workload itself."""
    if remedy.others:
        more = len(remedy.others) - 1
        return f"usage of {remedy.others[0].path}{f' and {more} more' if more else ''} ahead of it"
    return pending_message(remedy.refusal) if remedy.refusal is not None else "usage of workloads ahead of it"


def shortfall_message(shortfall: Shortfall) -> str:
    """Return one shortage of a workload; lower case, without a full stop."""
    if shortfall.resource is None or shortfall.lacks is None:
        return pending_message(shortfall.refusal)
    name = shortfall.resource
    asked, free, lacks = (
        format_quantity(name, amount or 0) for amount in (shortfall.requests, shortfall.free, shortfall.lacks)
    )
    where = f"cluster '{shortfall.cluster}'" if shortfall.cluster else f"queue '{shortfall.queue}'"
    place = "all clusters together" if shortfall.queue == ROOT else where
    others = ", ".join(f"{queue} {format_quantity(name, amount)}" for queue, amount in shortfall.guaranteed)
    guaranteed = f"; guaranteed to others: {others}" if others else ""
    idle = " even while idle" if shortfall.reason in EXCEEDS_WHEN_EMPTY else ""
    return f"{place}: requests {asked} {name}, free {free}{idle}, lacks {lacks}{guaranteed}"


def _format_amount(refusal: Refusal, amount: int | None) -> str:
    return format_quantity(refusal.resource or "", amount or 0)
