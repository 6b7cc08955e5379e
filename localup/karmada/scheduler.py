"""Karmada's scheduler: bindings that are not suspended in, `spec.clusters` out.

Suspension is looked at when an event comes, and never again (facts, no. 1): what
is in the queue already is still placed. Capacity that becomes free wakes nobody.
"""

import time

import structlog

from controller.backoff import Backoff
from localup.karmada.client import STATUS, Client, EventMessage
from localup.karmada.conditions import seconds_of, timestamp, with_condition
from localup.karmada.feasibility import is_ready, target_names
from localup.karmada.names import APPLIED_PLACEMENT
from localup.karmada.objects import (
    Key,
    Object,
    annotations_of,
    generation_of,
    is_terminating,
    key_of,
    labels_of,
    spec_of,
    status_of,
    with_metadata,
    with_spec,
    with_status,
)
from localup.karmada.placement import (
    Reason,
    SchedulerOptions,
    SchedulingResult,
    affinity_allows,
    format_applied_placement,
    has_replicas,
    is_divided,
    place,
)
from localup.karmada.policies import is_claimed
from localup.karmada.quirks import Quirks
from localup.karmada.settings import Settings
from localup.karmada.store import Store
from localup.karmada.workqueue import WorkQueue

log = structlog.get_logger()


class Scheduler:
    """Places bindings of one kind."""

    def __init__(self, bindings: Store, clusters: Store, client: Client, settings: Settings) -> None:
        self._bindings = bindings
        self._clusters = clusters
        self._client = client
        self._name = settings.scheduler_name
        self._quirks = settings.quirks
        self._options = SchedulerOptions(affinity_terms=settings.quirks.affinity_terms, copies=settings.quirks.copies)
        self._backoffs: dict[Key, Backoff] = {}
        self.queue = WorkQueue[Key]("scheduler", self._reconcile)
        bindings.add_event_handler(self._binding_changed)
        clusters.add_event_handler(self._cluster_changed)

    def _binding_changed(self, old: Object | None, new: Object | None) -> None:
        if new is None or not self._passes_filter(new):
            return
        if old is None or not self._passes_filter(old) or generation_of(old) != generation_of(new):
            self.queue.add(key_of(new))

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        """Look again at what a change of a cluster may concern; that a binding is claimed is not asked for here."""
        if old is None:
            return  # a new one changes once it is ready, when its taint goes
        new = new or old  # one that is gone is looked at like one that goes
        if (
            new is not old
            and _is_irrelevant_change(old, new)
            and (self._quirks.taints or is_ready(old) == is_ready(new))
        ):
            return
        for binding in self._bindings:
            if self._is_schedulable(binding) and (affinity_allows(binding, old) or affinity_allows(binding, new)):
                self.queue.add(key_of(binding))

    def _passes_filter(self, binding: Object) -> bool:
        """Be the event filter: ours, not suspended, and claimed by a policy."""
        return self._is_schedulable(binding) and is_claimed(binding)

    def _is_schedulable(self, binding: Object) -> bool:
        spec = spec_of(binding)
        is_ours = spec.get("schedulerName", self._name) == self._name and "placement" in spec
        return is_ours and not (spec.get("suspension") or {}).get("scheduling")

    async def _reconcile(self, key: Key) -> None:
        binding = self._bindings.get(key)
        if binding is None or is_terminating(binding) or not (self._quirks.leak or self._passes_filter(binding)):
            return
        if not self._is_due(binding):
            seen = with_status(binding, schedulerObservedGeneration=generation_of(binding))
            await self._client.update(self._bindings, binding, seen, part=STATUS)
            return
        outcome = place(binding, list(self._clusters), self._options)
        placed = await self._client.update(self._bindings, binding, _with_targets(binding, outcome))
        if placed is not binding:
            log.info("binding scheduled", binding=str(key), clusters=_target_names(outcome), reason=str(outcome.reason))
        await self._client.update(
            self._bindings, placed, _with_scheduled_condition(placed, outcome, time.time()), part=STATUS
        )
        if self._quirks.events and (placed is not binding or outcome.reason is not Reason.SUCCESS):
            await self._record_events(placed, outcome)
        self._schedule_retry(key, outcome)

    async def _record_events(self, binding: Object, outcome: SchedulingResult) -> None:
        """Write the events that Karmada's scheduler writes of an attempt: of the binding, and of its template."""
        event = EventMessage(self._name, "ScheduleBindingFailed", outcome.message, "Warning")
        if outcome.reason is Reason.SUCCESS:
            details = f"{outcome.message} Result: {{{', '.join(_target_names(outcome))}}}"
            event = EventMessage(self._name, "ScheduleBindingSucceed", details)
        for about in (binding, template_of(binding)):
            await self._client.record_event(about, event)

    def _is_due(self, binding: Object) -> bool:
        """Say whether a binding is to be placed at all: one whose replicas are divided and add up is left as it is."""
        spec = spec_of(binding)
        if annotations_of(binding).get(APPLIED_PLACEMENT) != format_applied_placement(spec["placement"]):
            return True
        if not has_replicas(spec) or not is_divided(spec) or _is_reschedule_requested(binding):
            return True
        placed = sum(int(cluster.get("replicas", 0)) for cluster in spec.get("clusters") or ())
        leaving = (cluster for cluster in self._clusters if is_terminating(cluster))
        return placed != int(spec.get("replicas", 0)) or any(
            key_of(item).name in target_names(binding) for item in leaving
        )

    def _schedule_retry(self, key: Key, outcome: SchedulingResult) -> None:
        """See to it that what failed is tried again, each failure in its own time."""
        quirks = self._quirks
        is_unschedulable = outcome.reason is Reason.UNSCHEDULABLE
        if outcome.reason is Reason.SCHEDULER_ERROR or (is_unschedulable and not quirks.unschedulable_retry):
            backoff = self._backoffs.setdefault(key, _backoff(quirks))
            self.queue.add_after(key, backoff.next_delay())
            return
        self._backoffs.pop(key, None)
        if is_unschedulable:
            self.queue.add_after(key, quirks.unschedulable_retry)
        elif outcome.reason is Reason.NO_CLUSTER_FIT and quirks.no_cluster_fit_retry:
            self.queue.add_after(key, quirks.no_cluster_fit_retry)


def _backoff(quirks: Quirks) -> Backoff:
    return Backoff(initial=quirks.backoff_first, maximum=quirks.backoff_most, jitter=lambda: 1)


def _is_reschedule_requested(binding: Object) -> bool:
    """Say whether somebody has asked for another placement since the last one."""
    asked, last = spec_of(binding).get("rescheduleTriggeredAt"), status_of(binding).get("lastScheduledTime")
    return asked is not None and last is not None and seconds_of(asked) > seconds_of(last)


def _with_targets(binding: Object, outcome: SchedulingResult) -> Object:
    if outcome.targets is None:
        return binding
    applied = format_applied_placement(spec_of(binding)["placement"])
    noted = with_metadata(binding, annotations={**annotations_of(binding), APPLIED_PLACEMENT: applied})
    return with_spec(noted, clusters=list(outcome.targets) or None)


def _with_scheduled_condition(binding: Object, outcome: SchedulingResult, now: float) -> Object:
    """Return *binding* saying how it went; a success that was told already is not told again."""
    status = status_of(binding)
    conditions = with_condition(status.get("conditions") or (), outcome.condition, now=now)
    if outcome.reason is not Reason.SUCCESS:
        return with_status(binding, conditions=conditions)
    details = {
        "conditions": conditions,
        "schedulerObservedGeneration": generation_of(binding),
        "schedulerObservingAffinityName": outcome.term or status.get("schedulerObservingAffinityName"),
    }
    if all(status.get(name) == value for name, value in details.items()):
        return binding
    return with_status(binding, **details, lastScheduledTime=timestamp(now))


def template_of(binding: Object) -> Object:
    """Return who the template of a binding is, as far as the binding says."""
    resource = spec_of(binding)["resource"]
    metadata = {"name": resource["name"], "namespace": resource.get("namespace", ""), "uid": resource.get("uid", "")}
    return {"apiVersion": resource["apiVersion"], "kind": resource["kind"], "metadata": metadata}


def _target_names(outcome: SchedulingResult) -> list[str]:
    return [str(target["name"]) for target in outcome.targets or ()]


def _is_irrelevant_change(old: Object, new: Object) -> bool:
    """Say whether the change of a cluster is none that makes Karmada look at bindings again."""
    return (
        labels_of(old) == labels_of(new)
        and generation_of(old) == generation_of(new)
        and is_terminating(old) == is_terminating(new)
    )
