"""Records events about workloads: why they are pending, admissions, evictions, and conditions of their bindings.

A binding condition is recorded once, when it is first observed, by the leader.
"""

from collections.abc import Callable, Iterable
from functools import partial

import structlog

from controller.api.keys import CLUSTER_RESOURCE_BINDINGS, JOBS, RESOURCE_BINDINGS
from controller.cache.objects import BindingCondition, CachedBinding, CachedTemplate
from controller.cache.store import Store
from controller.cache.unapplied_works import describe_refusals, unapplied
from controller.engine.plan import Wait
from controller.engine.reasons import TRANSIENT, EvictionReason
from controller.engine.state.workloads import WorkloadUid
from controller.kube.event_recorder import EventRecorder
from controller.kube.events import EventMessage, Reference
from controller.reporting.messages import (
    BINDING_WARNINGS,
    EVICTION_MESSAGES,
    NAME_COLLISION,
    pending_message,
    remedy_message,
)
from controller.reporting.redaction import redacted_path, redacted_refusal, same_namespace
from controller.scheduling.writes import Write


def pending_event(wait: Wait, binding: CachedBinding, is_current: Callable[[], bool] = lambda: True) -> EventMessage:
    """Return the message with the reason why a workload is pending."""
    refusal = wait.refusal
    return EventMessage(
        binding.uid,
        "waits",
        "Wait",
        refusal.reason,
        event_references(binding),
        lambda: pending_note(wait),
        "Normal" if refusal.reason in TRANSIENT else "Warning",
        is_current,
    )


def pending_note(wait: Wait) -> str:
    """Return why a workload is pending, without the names of workloads of other namespaces."""
    refusal = redacted_refusal(wait.refusal, same_namespace(wait.workload.namespace))
    return f"pending in queue '{wait.workload.queue}': {pending_message(refusal)}; {remedy_message(refusal)}"


def write_event(write: Write, binding: CachedBinding) -> EventMessage | None:
    """Return the message about an acknowledged write, ``None`` if it does not concern the tenant."""
    if write.effect == "admit":
        return EventMessage(
            write.uid, "admitted", "Admit", "Admitted", event_references(binding), lambda: _admission_note(write)
        )
    if write.effect == "evict":
        return EventMessage(
            write.uid,
            "evicted",
            "Evict",
            write.reason,
            event_references(binding),
            lambda: _eviction_note(write, binding.namespace),
            "Warning",
        )
    return None


def warning_event(binding: CachedBinding, reason: str, note: str) -> EventMessage:
    """Return a warning about a workload."""
    return EventMessage(binding.uid, "warned", "Warn", reason, event_references(binding), lambda: note, "Warning")


def event_references(binding: CachedBinding) -> tuple[Reference, ...]:
    """Return the objects that events about a workload regard: its template and its binding."""
    template, own = binding.template, RESOURCE_BINDINGS if binding.namespace else CLUSTER_RESOURCE_BINDINGS
    return (
        Reference(binding.api.group_version, binding.api.kind, template.namespace, template.name, binding.template_uid),
        Reference(own.api_version, own.kind, binding.namespace, binding.name, binding.uid),
    )


def _admission_note(write: Write) -> str:
    where = f"to {', '.join(write.clusters)}" if write.clusters else "to the clusters that Karmada chooses"
    return f"admitted {where} by queue '{write.queue}'"


def _eviction_note(write: Write, namespace: str) -> str:
    why = write.message or EVICTION_MESSAGES[EvictionReason(write.reason)]
    preemptor = f" for {redacted_path(write.preemptor, same_namespace(namespace))}" if write.preemptor else ""
    return f"evicted{preemptor}: {why}; pending again in queue '{write.queue}' with its original queueing time"


#: Conditions that are logged, too: another client caused them on purpose, or they harm other tenants.
_LOGGED_CONDITIONS = frozenset(
    {
        BindingCondition.NOT_SUSPENDED,
        BindingCondition.PLACED_WITHOUT_ADMISSION,
        BindingCondition.RESUMED_BY_OTHERS,
        BindingCondition.RESUSPENDED_AFTER_ADMISSION,
        BindingCondition.EVICTED_BY_OTHERS,
    }
)

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class WorkloadEvents:
    """Records events about workloads: pending reasons, written decisions and binding conditions."""

    def __init__(self, store: Store, recorder: EventRecorder, *, may_write: Callable[[], bool]) -> None:
        self._store = store
        self._recorder = recorder
        self._may_write = may_write
        store.on_conditions.append(self._on_conditions)
        store.on_name_collision.append(self._on_name_collision)

    def on_leading(self) -> None:
        """Record the conditions that were observed before this process became the leader."""
        for uid, conditions in self._store.conditions.items():
            binding = self._store.binding(uid)
            if binding is not None:
                self._on_conditions(binding, conditions)
        for job, binding in self._store.name_collisions:
            self._on_name_collision(job, binding)

    def on_waits(self, waits: Iterable[Wait]) -> None:
        """Record the reasons of workloads that are pending."""
        for wait in waits:
            if self._recorder.would_drop(wait.workload.namespace):
                self._recorder.count_dropped()
            elif (binding := self._store.binding(wait.workload.uid)) is not None:
                self._recorder.record(pending_event(wait, binding, partial(self._is_pending, binding.uid)))

    def on_write(self, write: Write, binding: CachedBinding) -> None:
        """Record an admission or eviction that was written."""
        message = write_event(write, binding)
        if message is not None:
            self._recorder.record(message)

    def _is_pending(self, uid: WorkloadUid) -> bool:
        binding = self._store.binding(uid)
        return binding is not None and binding.is_suspended

    def _on_conditions(self, binding: CachedBinding, conditions: frozenset[BindingCondition]) -> None:
        if not self._may_write():
            return
        for condition in sorted(conditions & BINDING_WARNINGS.keys()):
            if condition in _LOGGED_CONDITIONS:
                log.warning(
                    "binding condition observed", namespace=binding.namespace, name=binding.name, condition=condition
                )
            self._recorder.record(warning_event(binding, condition, _warning_note(binding, condition)))

    def _on_name_collision(self, job: CachedTemplate, binding: CachedBinding) -> None:
        if not self._may_write():
            return
        log.warning("binding name collision", namespace=binding.namespace, name=binding.name, job=job.key.name)
        note = NAME_COLLISION.format(
            binding=binding.name, kind=binding.api.kind, name=binding.template.name, version=binding.api.group_version
        )
        about = Reference(JOBS.api_version, JOBS.kind, job.key.namespace, job.key.name, job.uid)
        self._recorder.record(EventMessage(job.uid, "warned", "Warn", "NameTaken", (about,), lambda: note, "Warning"))


def _warning_note(binding: CachedBinding, condition: BindingCondition) -> str:
    """Return the text for a condition, with the clusters in the record and in the binding, and what they refuse."""
    before = ", ".join(binding.record.clusters) if binding.record else ""
    after = ", ".join(target.name for target in binding.targets)
    refusals = describe_refusals(unapplied(binding))
    facts = {"{before}": before or "none", "{after}": after or "none", "{refusals}": refusals}
    text = BINDING_WARNINGS[condition]
    for name, fact in facts.items():
        # Last: clusters write the refusals, which may contain the other names.
        text = text.replace(name, fact)
    return text
