"""Reports binding conditions as events: each once, when it is first observed, by the leader."""

from collections.abc import Callable

import structlog

from controller.api.keys import JOBS
from controller.cache.objects import BindingCondition, CachedBinding, CachedTemplate
from controller.cache.store import Store
from controller.kube.event_recorder import EventRecorder
from controller.kube.events import EventMessage, Reference
from controller.reporting.messages import BINDING_WARNINGS, NAME_COLLISION

#: Conditions that do not occur by mistake or harm other tenants; they are logged too.
_LOGGED_CONDITIONS = frozenset(
    {
        BindingCondition.NOT_SUSPENDED,
        BindingCondition.PLACED_WITHOUT_ADMISSION,
        BindingCondition.RESUSPENDED_AFTER_ADMISSION,
        BindingCondition.EVICTED_BY_OTHERS,
    }
)

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class BindingWarnings:
    """Receives binding conditions from the store and records events for them."""

    def __init__(self, store: Store, recorder: EventRecorder, *, may_write: Callable[[], bool]) -> None:
        self._store = store
        self._recorder = recorder
        self._may_write = may_write
        store.on_conditions = self._on_conditions
        store.on_name_collision = self._on_name_collision

    def on_leading(self) -> None:
        """Record the conditions that were observed before this process became the leader."""
        for uid, conditions in self._store.conditions.items():
            binding = self._store.binding(uid)
            if binding is not None:
                self._on_conditions(binding, conditions)
        for job, binding in self._store.name_collisions:
            self._on_name_collision(job, binding)

    def _on_conditions(self, binding: CachedBinding, conditions: frozenset[BindingCondition]) -> None:
        if not self._may_write():
            return
        for condition in sorted(conditions & BINDING_WARNINGS.keys()):
            if condition in _LOGGED_CONDITIONS:
                log.warning(
                    "binding condition observed", namespace=binding.namespace, name=binding.name, condition=condition
                )
            self._recorder.record_warning(binding, condition, _warning_note(binding, condition))

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
    """Return the text for a condition, with the clusters in the record and in the binding."""
    before = ", ".join(binding.record.clusters) if binding.record else ""
    after = ", ".join(target.name for target in binding.targets)
    return BINDING_WARNINGS[condition].replace("{before}", before or "none").replace("{after}", after or "none")
