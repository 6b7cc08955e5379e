"""Implements Karmada's scheduler: sets `spec.clusters` of bindings that are not suspended.

Suspension is only checked when an event arrives (facts, no. 1): queued bindings are scheduled even if suspended
meanwhile. Freed capacity triggers no retry.
"""

from typing import Final

import structlog

from controller.kube.timing import Backoff
from localup.karmada.binding import is_claimed
from localup.karmada.cache import STATUS, ControlPlaneCache, Store
from localup.karmada.controller import ObjectController
from localup.karmada.objects import (
    APPLIED_PLACEMENT,
    Key,
    Object,
    annotations_of,
    generation_of,
    is_terminating,
    key_of,
    labels_of,
    spec_of,
    status_of,
    timestamp,
    with_conditions,
    with_metadata,
    with_spec,
    with_status,
)
from localup.karmada.placement import (
    Reason,
    SchedulingResult,
    affinity_allows,
    format_applied_placement,
    is_divided,
    place,
    target_names,
)

log = structlog.get_logger()

_SCHEDULER: Final = "default-scheduler"

#: Maximum backoff after a `SchedulerError`; retries never end (facts, §1).
_MAX_BACKOFF_SECONDS: Final = 10

#: Bindings with too few available replicas are retried after this time, without regard to capacity changes (§1).
_UNSCHEDULABLE_SECONDS: Final = 300


class Scheduler(ObjectController):
    """Schedules bindings of one kind."""

    def __init__(self, cache: ControlPlaneCache, bindings: Store) -> None:
        super().__init__(cache, bindings)
        self._backoffs: dict[Key, Backoff] = {}
        cache.clusters.add_event_handler(self._cluster_changed)

    def concerns(self, old: Object | None, new: Object) -> bool:
        """Return whether a new generation, or a binding that passes it now, passes the event filter."""
        return _passes_filter(new) and (
            old is None or not _passes_filter(old) or generation_of(old) != generation_of(new)
        )

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        """Queue bindings whose affinity allows the changed cluster; unclaimed bindings are included, as in Karmada."""
        if old is None:
            return  # a new cluster triggers when it becomes ready and loses its taint
        new = new or old  # a deleted cluster is handled like a terminating one
        if new is not old and _is_irrelevant_change(old, new):
            return
        for binding in self.store:
            if _is_schedulable(binding) and (affinity_allows(binding, old) or affinity_allows(binding, new)):
                self.queue.add(key_of(binding))

    async def reconcile_object(self, item: Object) -> None:
        """Set the clusters of a binding and its condition `Scheduled`."""
        binding, key = item, key_of(item)
        if not self._is_due(binding):
            seen = with_status(binding, schedulerObservedGeneration=generation_of(binding))
            await self.cache.update(binding, seen, part=STATUS)
            return
        outcome = place(binding, list(self.cache.clusters))
        placed = await self.cache.update(binding, _with_targets(binding, outcome))
        if placed is not binding:
            log.info("binding scheduled", binding=str(key), clusters=_target_names(outcome), reason=str(outcome.reason))
        await self.cache.update(placed, _with_scheduled_condition(placed, outcome, self.cache.now()), part=STATUS)
        self._schedule_retry(key, outcome)

    def _is_due(self, binding: Object) -> bool:
        """Return whether a binding must be scheduled; divided replicas that add up are left unchanged."""
        spec = spec_of(binding)
        if annotations_of(binding).get(APPLIED_PLACEMENT) != format_applied_placement(spec["placement"]):
            return True
        if not is_divided(spec):
            return True
        placed = sum(int(cluster.get("replicas", 0)) for cluster in spec.get("clusters") or ())
        leaving = (cluster for cluster in self.cache.clusters if is_terminating(cluster))
        return placed != int(spec.get("replicas", 0)) or any(
            key_of(item).name in target_names(binding) for item in leaving
        )

    def _schedule_retry(self, key: Key, outcome: SchedulingResult) -> None:
        """Queue a retry after a failure; the delay depends on the reason."""
        if outcome.reason is Reason.SCHEDULER_ERROR:
            backoff = Backoff(initial=1, maximum=_MAX_BACKOFF_SECONDS, jitter=lambda: 1)
            self.queue.add_after(key, self._backoffs.setdefault(key, backoff).next_delay())
            return
        self._backoffs.pop(key, None)
        if outcome.reason is Reason.UNSCHEDULABLE:
            self.queue.add_after(key, _UNSCHEDULABLE_SECONDS)


def _passes_filter(binding: Object) -> bool:
    """Return whether a binding passes the event filter: own scheduler name, not suspended, claimed."""
    return _is_schedulable(binding) and is_claimed(binding)


def _is_schedulable(binding: Object) -> bool:
    spec = spec_of(binding)
    is_ours = spec.get("schedulerName", _SCHEDULER) == _SCHEDULER and "placement" in spec
    return is_ours and not (spec.get("suspension") or {}).get("scheduling")


def _with_targets(binding: Object, outcome: SchedulingResult) -> Object:
    if outcome.targets is None:
        return binding
    applied = format_applied_placement(spec_of(binding)["placement"])
    noted = with_metadata(binding, annotations={**annotations_of(binding), APPLIED_PLACEMENT: applied})
    return with_spec(noted, clusters=list(outcome.targets) or None)


def _with_scheduled_condition(binding: Object, outcome: SchedulingResult, now: float) -> Object:
    """Return *binding* with the result of the attempt; an unchanged success changes nothing."""
    status, updated = status_of(binding), with_conditions(binding, outcome.condition, now=now)
    if outcome.reason is not Reason.SUCCESS:
        return updated
    details = {
        "conditions": updated["status"]["conditions"],
        "schedulerObservedGeneration": generation_of(binding),
        "schedulerObservingAffinityName": outcome.term or status.get("schedulerObservingAffinityName"),
    }
    if all(status.get(name) == value for name, value in details.items()):
        return binding
    return with_status(binding, **details, lastScheduledTime=timestamp(now))


def _target_names(outcome: SchedulingResult) -> list[str]:
    return [str(target["name"]) for target in outcome.targets or ()]


def _is_irrelevant_change(old: Object, new: Object) -> bool:
    """Return whether a cluster change triggers no scheduling."""
    return (
        labels_of(old) == labels_of(new)
        and generation_of(old) == generation_of(new)
        and is_terminating(old) == is_terminating(new)
    )
