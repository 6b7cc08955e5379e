"""The sentences made from refusals, in one place.

Command line, events, log and metrics name the same code; this is the only
module that turns its facts into words for people.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from controller.api.quantity import format_quantity
from controller.cache.binding_conditions import BindingCondition
from controller.engine.fit import NODES_FULL
from controller.engine.queues import ROOT
from controller.engine.reasons import CAPACITY, EvictionReason, Reason, Refusal
from controller.engine.remedies import Change, Remedy
from controller.engine.shortfalls import Shortfall

#: What each code says, with the facts as fields.
PENDING_MESSAGES: Mapping[Reason, str] = {
    Reason.QUEUE_NOT_FOUND: "queue '{queue}' does not exist",
    Reason.QUEUE_CLOSED: "queue '{queue}' is {subject} and takes no new workloads",
    Reason.QUEUE_NOT_LEAF: "queue '{queue}' has child queues; only a queue without children takes workloads",
    Reason.QUEUE_HIERARCHY_INVALID: "queue '{queue}' does not hang on the root: {subject}",
    Reason.QUEUE_NOT_ALLOWED: "namespace '{subject}' may not use queue '{queue}'",
    Reason.PRIORITY_CLASS_NOT_ALLOWED: "PriorityClass '{subject}' may not be used by this namespace",
    Reason.EXCEEDS_QUEUE_LIMIT: "it asks for {asked} {resource}, queue '{queue}' can never have more than {available}",
    Reason.EXCEEDS_TOTAL_CAPACITY: (
        "it asks for {asked} {resource}, all clusters together have no more than {available}"
    ),
    Reason.QUEUE_LIMIT_REACHED: "it asks for {asked} {resource}, queue '{queue}' has {available} left below its limit",
    Reason.BLOCKED_BY_GUARANTEE: (
        "it asks for {asked} {resource}, but only {available} of queue '{queue}' are not reserved for guarantees"
    ),
    Reason.BLOCKED_BY_RESERVATION: "the room it could take is kept for {subject}, which has waited longer",
    Reason.BLOCKED_BY_QUEUE_HEAD: "queue '{queue}' is strictly first in, first out, and {subject} is before it",
    Reason.INSUFFICIENT_CAPACITY: (
        "no candidate cluster has room now; '{cluster}' comes closest with {available} {resource} of {asked}"
    ),
    Reason.EXCEEDS_EVERY_CLUSTER: (
        "no cluster holds it even while empty; '{cluster}' comes closest with {available} {resource} of {asked}"
    ),
    Reason.NO_MATCHING_CLUSTER: "its placement and the clusters exclude each other ({subject})",
    Reason.BLOCKED_BY_FAIR_SHARE: "it would borrow {resource} that other queues are entitled to and wait for",
    Reason.HYPERJOB_INCOMPLETE: "not enough parts of its group are there and free to start: {subject}",
    Reason.HYPERJOB_DOES_NOT_FIT: "part {subject} of its group does not fit",
    Reason.PREEMPTION_IN_PROGRESS: "others are leaving '{cluster}' for it",
    Reason.STARTUP_BACKOFF: "the last attempt to start it failed: {subject}",
    Reason.SUSPENDED: "its policy suspends dispatching",
    Reason.ABORTED: "it was aborted",
    Reason.NO_MATCHING_POLICY: "no PropagationPolicy selects it any more",
    Reason.REQUESTS_UNKNOWN: "what it asks for is not known: {subject}",
    Reason.INTERNAL_ERROR: "evaluating it failed, and it is set aside: {subject}",
}

_OWN_EVICTION = "it was evicted and is itself still leaving its clusters"
_OWN_EVICTION_REMEDY = "it waits for room once it is gone"

#: What is said where the queue is the root, which nobody has made and many have never heard of.
ROOT_QUEUE_MESSAGES: Mapping[Reason, str] = {
    Reason.INSUFFICIENT_CAPACITY: "it asks for {asked} {resource}, all usable clusters together have {available} left",
    Reason.BLOCKED_BY_GUARANTEE: (
        "it asks for {asked} {resource}, but only {available} of all clusters together are not reserved for guarantees"
    ),
}

_TOTAL_CAPACITY_REMEDY = "ask for less, split it, or add clusters"

#: What would change it.
REMEDIES: Mapping[Reason, str] = {
    Reason.QUEUE_NOT_FOUND: "create the queue, or name another in spec.queue",
    Reason.QUEUE_CLOSED: "open the queue, or submit to another",
    Reason.QUEUE_NOT_LEAF: "name one of its child queues",
    Reason.QUEUE_HIERARCHY_INVALID: "put the parents of the queue right",
    Reason.QUEUE_NOT_ALLOWED: "use a queue of this namespace's tenant, or change `tenants` in the configuration",
    Reason.PRIORITY_CLASS_NOT_ALLOWED: "use another class, or change `tenants` in the configuration",
    Reason.EXCEEDS_QUEUE_LIMIT: "ask for less, or raise the queue's capability",
    Reason.EXCEEDS_TOTAL_CAPACITY: _TOTAL_CAPACITY_REMEDY,
    Reason.QUEUE_LIMIT_REACHED: "it starts when workloads of the queue finish",
    Reason.BLOCKED_BY_GUARANTEE: "it starts when workloads finish that hold more than their queue's guarantee",
    Reason.BLOCKED_BY_RESERVATION: "it starts after the other, or when the reservation lapses",
    Reason.BLOCKED_BY_QUEUE_HEAD: "it starts after the one before it",
    Reason.INSUFFICIENT_CAPACITY: "it starts when workloads there finish",
    Reason.EXCEEDS_EVERY_CLUSTER: "ask for less, split it, or add a larger cluster",
    Reason.NO_MATCHING_CLUSTER: "change the placement of its policy, or label, untaint or add a cluster",
    Reason.BLOCKED_BY_FAIR_SHARE: "it starts when the others were served",
    Reason.HYPERJOB_INCOMPLETE: "it starts when the other parts are there, and back off no longer",
    Reason.HYPERJOB_DOES_NOT_FIT: "it starts when there is room for enough of its parts",
    Reason.PREEMPTION_IN_PROGRESS: "it starts when those evicted for it are gone",
    Reason.STARTUP_BACKOFF: "it is tried again by itself",
    Reason.SUSPENDED: "take spec.suspension out of its PropagationPolicy",
    Reason.ABORTED: "resume it (vcctl job resume) or change its template",
    Reason.NO_MATCHING_POLICY: "create a policy that selects it",
    Reason.REQUESTS_UNKNOWN: "put its template right",
    Reason.INTERNAL_ERROR: "it is tried again after a minute; report the error that the controller has logged",
}

#: What is said of each reason for which somebody has to go.
EVICTION_MESSAGES: Mapping[EvictionReason, str] = {
    EvictionReason.RECLAIMED: "its queue has borrowed what another queue is entitled to",
    EvictionReason.PREEMPTED: "a workload of its queue with a higher priority needs its place",
    EvictionReason.RESIZE_REJECTED: "it asks for more than it was admitted with, and that does not fit",
    EvictionReason.STARTUP_TIMEOUT: "it has not started in time",
    EvictionReason.CLUSTER_CHANGED: "it was moved to a cluster where it does not fit",
    EvictionReason.ABORTED: "it was aborted",
}

#: What is added where the resource is known that one part of a group lacks.
_PART_SHORTAGE = ": it asks for {asked} {resource}, {available} are left"
#: What is said of a binding, or its job, that somebody may have to see to.
BINDING_WARNINGS: Mapping[BindingCondition, str] = {
    BindingCondition.NOT_SUSPENDED: "it was neither paused nor admitted: it came past our webhook",
    BindingCondition.PLACED_WITHOUT_ADMISSION: "somebody has placed it without admission; its clusters are taken away",
    BindingCondition.RESUSPENDED_AFTER_ADMISSION: (
        "it was suspended by others after its admission; it is resumed, because it kept its clusters"
    ),
    BindingCondition.EVICTED_BY_OTHERS: (
        "it was paused and its clusters were removed by hand after its admission; it waits in its queue again"
    ),
    BindingCondition.MOVED: (
        "its clusters were changed from {before} to {after} after its admission; its charge follows"
    ),
    BindingCondition.RESIZED: "it asks for more than it was admitted with",
    BindingCondition.INVALID_RECORD: (
        "its annotation volcano-global.io/admission is not a valid admission record and is ignored"
    ),
    BindingCondition.UNREADABLE: "a field of it, or of its binding, cannot be read",
    BindingCondition.PLACED_ON_ALL_CLUSTERS: (
        "its policy does not keep it to one cluster: Karmada would copy the whole of it to every candidate cluster, "
        "and each copy is charged; add spreadConstraints [{spreadByField: cluster, minGroups: 1, maxGroups: 1}]"
    ),
    BindingCondition.APPLICATION_FAILOVER: (
        "its policy sets failover.application: Karmada takes a failed job for unhealthy and makes it again on another "
        "cluster, again and again, and each run is charged; leave it out and set maxRetry in the job"
    ),
    BindingCondition.RESOURCES_PRESERVED: (
        "its policy sets preserveResourcesOnDeletion, so clearing its clusters would not stop it"
    ),
}
#: What is said of a job whose binding's name another's binding bears.
NAME_COLLISION = (
    "binding '{binding}' stands for {kind} {name} of {version}: Karmada names both alike; rename one of them"
)

#: The reasons beside which something else may be missing, which their remedy does not end.
_EXCEEDS = frozenset({Reason.EXCEEDS_QUEUE_LIMIT, Reason.EXCEEDS_TOTAL_CAPACITY, Reason.EXCEEDS_EVERY_CLUSTER})
_INCOMPLETE_REMEDIES = CAPACITY | {Reason.HYPERJOB_DOES_NOT_FIT}
_NODE_MESSAGES = {
    Reason.INSUFFICIENT_CAPACITY: "no candidate cluster has a node for each of its pods now",
    Reason.EXCEEDS_EVERY_CLUSTER: "no cluster has nodes that its gang fits on, even empty",
}


def pending_message(refusal: Refusal) -> str:
    """Return why it waits, in words; lower case, without a full stop."""
    if refusal.reason is Reason.PREEMPTION_IN_PROGRESS and refusal.cluster is None:
        return _OWN_EVICTION
    if refusal.resource is None and refusal.reason in _NODE_MESSAGES:
        if refusal.cluster is None:
            return refusal.subject or "none of its candidate clusters takes new workloads now"
        if refusal.subject == NODES_FULL:
            return f"the nodes of '{refusal.cluster}' have no room for its gang now, as its scheduler estimator counts"
        return _NODE_MESSAGES[refusal.reason]
    if refusal.reason is Reason.QUEUE_NOT_FOUND and not refusal.queue:
        return "its queue is not known: its object is not there, or cannot be read"
    facts = {
        "resource": refusal.resource,
        "asked": _format_amount(refusal, refusal.asked),
        "available": _format_amount(refusal, max(refusal.available or 0, 0)),
        "queue": refusal.queue,
        "cluster": refusal.cluster,
        "subject": refusal.subject or "unknown",
    }
    at_root = ROOT_QUEUE_MESSAGES.get(refusal.reason) if refusal.queue == ROOT else None
    is_part_short = refusal.reason is Reason.HYPERJOB_DOES_NOT_FIT and refusal.resource is not None
    return ((at_root or PENDING_MESSAGES[refusal.reason]) + (_PART_SHORTAGE if is_part_short else "")).format_map(facts)


def remedy_message(refusal: Refusal) -> str:
    """Return what ends this reason, in words, and whether more may be missing; lower case, without a full stop."""
    return _remedy_for(refusal) + (
        "; explain lists all that it lacks" if refusal.reason in _INCOMPLETE_REMEDIES else ""
    )


def _remedy_for(refusal: Refusal) -> str:
    if refusal.reason is Reason.PREEMPTION_IN_PROGRESS and refusal.cluster is None:
        return _OWN_EVICTION_REMEDY
    if refusal.queue == ROOT and refusal.reason in ROOT_QUEUE_MESSAGES:
        return "it starts when workloads finish"
    if refusal.reason is Reason.QUEUE_NOT_FOUND and not refusal.queue:
        return "see whether the controller may read objects of its kind"
    if refusal.reason is Reason.STARTUP_BACKOFF and refusal.until is not None:
        return f"it is tried again by itself after {_format_time(refusal.until)}"
    return REMEDIES[refusal.reason]


def verified_remedy(refusal: Refusal, found: Remedy | None) -> str:
    """Return the remedy that the engine has *found* for a workload, in words, with what it does not include.

    Where it has found none, what ends the reason alone.
    """
    if found is None:
        is_sure = refusal.reason is Reason.PREEMPTION_IN_PROGRESS or refusal.until is not None
        return _remedy_for(refusal) + ("" if is_sure else "; not included is what else it lacks then")
    changes = " and ".join(_describe_changes(found.changes)) or "it lacks nothing once it is first"
    return changes if found.is_complete else f"{changes}; not included: {_excluded_from_remedy(found)}"


def _describe_changes(changes: tuple[Change, ...]) -> Iterator[str]:
    for change in changes:
        before, after = (format_quantity(change.resource, amount) for amount in (change.before, change.after))
        if change.kind == "queue":
            yield f"raise capability of queue '{change.name}' from {before} to {after} {change.resource}"
        else:
            added = format_quantity(change.resource, change.after - change.before)
            yield f"add {added} {change.resource} to cluster '{change.name}' ({before} allocatable)"


def _excluded_from_remedy(found: Remedy) -> str:
    """Return what a remedy does not include: what others take first, else why the workload still waits."""
    if found.others:
        more = len(found.others) - 1
        return f"what {found.others[0].path} {f'and {more} more take' if more else 'takes'} before it"
    return pending_message(found.refusal) if found.refusal is not None else "what others take before it"


def shortfall_message(shortfall: Shortfall) -> str:
    """Return one thing that a workload lacks, in words; lower case, without a full stop."""
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
    idle = " even while idle" if shortfall.reason in _EXCEEDS else ""
    return f"{place}: asks for {asked} {name}, free {free}{idle}, lacks {lacks}{guaranteed}"


def _format_time(time: int) -> str:
    return datetime.fromtimestamp(-(-time // 1000), UTC).isoformat().replace("+00:00", "Z")


def _format_amount(refusal: Refusal, amount: int | None) -> str:
    return format_quantity(refusal.resource or "", amount or 0)
