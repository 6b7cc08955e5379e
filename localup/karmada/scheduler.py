"""Karmada's scheduler: bindings that are not suspended in, `spec.clusters` out.

Suspension is looked at when an event comes, and never again (facts, no. 1): what
is in the queue already is still placed. Capacity that becomes free wakes nobody.
"""

import time

import structlog

from localup.karmada.conditions import timestamp, with_condition
from localup.karmada.feasibility import is_ready
from localup.karmada.mirror import Mirror
from localup.karmada.names import APPLIED_PLACEMENT
from localup.karmada.objects import (
    Key,
    Object,
    annotations_of,
    generation_of,
    is_leaving,
    key_of,
    labels_of,
    spec_of,
    status_of,
    with_metadata,
    with_spec,
    with_status,
)
from localup.karmada.placement import Outcome, Reason, place, written_as_applied
from localup.karmada.policies import is_claimed
from localup.karmada.settings import Settings
from localup.karmada.workqueue import AgainError, WorkQueue
from localup.karmada.writer import STATUS, Writer

log = structlog.get_logger()


class Scheduler:
    """Places bindings."""

    def __init__(self, mirror: Mirror, writer: Writer, settings: Settings) -> None:
        self._mirror = mirror
        self._writer = writer
        self._settings = settings
        self.queue = WorkQueue[Key]("scheduler", self._reconcile)
        mirror.bindings.listen(self._binding_changed)
        mirror.clusters.listen(self._cluster_changed)

    def _binding_changed(self, old: Object | None, new: Object | None) -> None:
        if new is None or not self._passes(new):
            return
        if old is None or not self._passes(old) or generation_of(old) != generation_of(new):
            self.queue.add(key_of(new))

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        if new is None or (old is not None and _looks_the_same(old, new)):
            return
        for each in self._mirror.bindings:
            if self._passes(each):
                self.queue.add(key_of(each))

    def _passes(self, binding: Object) -> bool:
        """Be the event filter: ours, not suspended, and claimed by a policy."""
        spec = spec_of(binding)
        if spec.get("schedulerName", self._settings.scheduler_name) != self._settings.scheduler_name:
            return False
        return not (spec.get("suspension") or {}).get("scheduling") and is_claimed(binding)

    async def _reconcile(self, key: Key) -> None:
        binding = self._mirror.bindings.get(key)
        if binding is None or is_leaving(binding):
            return
        outcome = place(binding, list(self._mirror.clusters))
        placed = await self._writer.update(self._mirror.bindings, binding, _with_targets(binding, outcome))
        if placed is not binding:
            log.info("binding scheduled", binding=str(key), clusters=_named(outcome), reason=str(outcome.reason))
        await self._writer.update(
            self._mirror.bindings, placed, _with_verdict(placed, outcome, time.time()), part=STATUS
        )
        self._come_back(key, outcome)

    def _come_back(self, key: Key, outcome: Outcome) -> None:
        """See to it that what failed is tried again, each failure in its own time."""
        if outcome.reason is Reason.SCHEDULER_ERROR:
            raise AgainError(outcome.message)
        if outcome.reason is Reason.UNSCHEDULABLE:
            self.queue.add_after(key, self._settings.unschedulable_seconds)


def _with_targets(binding: Object, outcome: Outcome) -> Object:
    if outcome.targets is None:
        return binding
    applied = written_as_applied(spec_of(binding)["placement"])
    noted = with_metadata(binding, annotations={**annotations_of(binding), APPLIED_PLACEMENT: applied})
    return with_spec(noted, clusters=list(outcome.targets) or None)


def _with_verdict(binding: Object, outcome: Outcome, now: float) -> Object:
    """Return *binding* saying how it went; a success that was told already is not told again."""
    status = status_of(binding)
    conditions = with_condition(status.get("conditions") or (), outcome.condition, now=now)
    if outcome.reason is not Reason.SUCCESS:
        return with_status(binding, conditions=conditions)
    told = {
        "conditions": conditions,
        "schedulerObservedGeneration": generation_of(binding),
        "schedulerObservingAffinityName": outcome.term or None,
    }
    if all(status.get(name) == value for name, value in told.items()):
        return binding
    return with_status(binding, **told, lastScheduledTime=timestamp(now))


def _named(outcome: Outcome) -> list[str]:
    return [str(each["name"]) for each in outcome.targets or ()]


def _looks_the_same(old: Object, new: Object) -> bool:
    """Say whether the change of a cluster is none that makes Karmada look at bindings again.

    There, a cluster that becomes ready loses a taint and so changes its spec.
    """
    return (
        labels_of(old) == labels_of(new)
        and old.get("spec") == new.get("spec")
        and is_leaving(old) == is_leaving(new)
        and is_ready(old) == is_ready(new)
        and status_of(old).get("apiEnablements") == status_of(new).get("apiEnablements")
    )
