"""What there is to tell about a workload, and of which objects it is told.

Pure. Words are made when somebody is about to read them: of a thousand who
wait most are never told, because they are admitted first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from controller.api.keys import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS
from controller.cache.objects import CachedBinding
from controller.engine.plan import Wait
from controller.engine.reasons import EvictionReason, Reason
from controller.messages import EVICTION_MESSAGES, pending_message, remedy_message
from controller.writes import Write

Topic = Literal["waits", "admitted", "evicted", "warned"]
EventType = Literal["Normal", "Warning"]

#: Waiting for these ends by itself; for all others somebody must do something.
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


@dataclass(frozen=True, slots=True)
class Reference:
    """An object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class EventMessage:
    """One thing that happened to one workload."""

    uid: str
    """Whose; of the same topic only the newest is told."""
    topic: Topic
    action: str
    reason: str
    regarding: tuple[Reference, ...]
    note: Callable[[], str]
    kind: EventType = "Normal"

    @property
    def key(self) -> tuple[str, str]:
        """Return what newer news of the same sort replace."""
        return self.uid, f"{self.topic}:{self.reason}" if self.topic == "warned" else self.topic


def pending_event(wait: Wait, facts: CachedBinding) -> EventMessage:
    """Return that a workload waits, and what for."""
    refusal = wait.refusal
    return EventMessage(
        facts.uid,
        "waits",
        "Wait",
        refusal.reason,
        event_references(facts),
        lambda: f"waits in queue '{wait.workload.queue}': {pending_message(refusal)}; {remedy_message(refusal)}",
        "Normal" if refusal.reason in _TRANSIENT else "Warning",
    )


def write_event(write: Write, facts: CachedBinding) -> EventMessage | None:
    """Return what an acknowledged write did to a workload, ``None`` where its tenant need not know."""
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
    """Return something else that somebody should see to."""
    return EventMessage(facts.uid, "warned", "Warn", reason, event_references(facts), lambda: note, "Warning")


def event_references(facts: CachedBinding) -> tuple[Reference, ...]:
    """Return the objects that are told of a workload: its template, and its binding."""
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
    whom = f" for {write.for_whom}" if write.for_whom else ""
    return f"evicted{whom}: {why}; it keeps its age and waits again in queue '{write.queue}'"
