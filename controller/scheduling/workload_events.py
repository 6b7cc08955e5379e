"""Content of the events about workloads, and the objects that they regard.

Pure. The note is rendered when the event is written, because most pending workloads are admitted before that.
"""

from controller.api.keys import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS
from controller.cache.objects import CachedBinding
from controller.engine.plan import Wait
from controller.engine.reasons import EvictionReason, Reason
from controller.kube.events import EventMessage, Reference
from controller.reporting.messages import EVICTION_MESSAGES, pending_message, remedy_message
from controller.scheduling.writes import Write

#: Reasons that end without an action of the user; events with other reasons are warnings.
_TRANSIENT = frozenset(
    {
        Reason.QUEUE_LIMIT_REACHED,
        Reason.BLOCKED_BY_GUARANTEE,
        Reason.BLOCKED_BY_RESERVATION,
        Reason.BLOCKED_BY_QUEUE_HEAD,
        Reason.INSUFFICIENT_CAPACITY,
        Reason.BLOCKED_BY_FAIR_SHARE,
        Reason.HYPERJOB_INCOMPLETE,
        Reason.HYPERJOB_DOES_NOT_FIT,
        Reason.PREEMPTION_IN_PROGRESS,
        Reason.STARTUP_BACKOFF,
        Reason.SUSPENDED,
    }
)


def pending_event(wait: Wait, facts: CachedBinding) -> EventMessage:
    """Return the message with the reason why a workload is pending."""
    refusal = wait.refusal
    return EventMessage(
        facts.uid,
        "waits",
        "Wait",
        refusal.reason,
        event_references(facts),
        lambda: f"pending in queue '{wait.workload.queue}': {pending_message(refusal)}; {remedy_message(refusal)}",
        "Normal" if refusal.reason in _TRANSIENT else "Warning",
    )


def write_event(write: Write, facts: CachedBinding) -> EventMessage | None:
    """Return the message about an acknowledged write, ``None`` if it does not concern the tenant."""
    if write.effect == "admit":
        return EventMessage(
            write.uid, "admitted", "Admit", "Admitted", event_references(facts), lambda: _admission_note(write)
        )
    if write.effect == "evict":
        return EventMessage(
            write.uid,
            "evicted",
            "Evict",
            write.reason,
            event_references(facts),
            lambda: _eviction_note(write),
            "Warning",
        )
    return None


def warning_event(facts: CachedBinding, reason: str, note: str) -> EventMessage:
    """Return a warning about a workload."""
    return EventMessage(facts.uid, "warned", "Warn", reason, event_references(facts), lambda: note, "Warning")


def event_references(facts: CachedBinding) -> tuple[Reference, ...]:
    """Return the objects that events about a workload regard: its template and its binding."""
    template, own = facts.template, RESOURCE_BINDINGS if facts.namespace else CLUSTER_RESOURCE_BINDINGS
    return (
        Reference(facts.api.group_version, facts.api.kind, template.namespace, template.name, facts.template_uid),
        Reference(own.api_version, own.kind, facts.namespace, facts.name, facts.uid),
    )


def _admission_note(write: Write) -> str:
    where = f"to {', '.join(write.clusters)}" if write.clusters else "to the clusters that Karmada chooses"
    return f"admitted {where} by queue '{write.queue}'"


def _eviction_note(write: Write) -> str:
    why = write.message or EVICTION_MESSAGES[EvictionReason(write.reason)]
    preemptor = f" for {write.preemptor}" if write.preemptor else ""
    return f"evicted{preemptor}: {why}; pending again in queue '{write.queue}' with its original queueing time"
