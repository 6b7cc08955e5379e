"""Implements Karmada's status controllers: aggregates Works into bindings, and bindings into templates.

A template keeps its last status when its binding loses all reported status, so an evicted job stays `Running` (facts,
§1). A later pass over an empty status clears it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog

from controller.kube.errors import Conflict
from localup.karmada import names
from localup.karmada.binding import owner_of
from localup.karmada.cache import STATUS, ControlPlaneCache, Store
from localup.karmada.controller import ObjectController, RetryError
from localup.karmada.feasibility import target_names
from localup.karmada.objects import (
    BATCH_JOB,
    DEPLOYMENT,
    STATEFUL_SET,
    VOLCANO_JOB,
    Condition,
    Key,
    Kind,
    Object,
    condition,
    generation_of,
    is_terminating,
    is_true,
    key_of,
    kind_of,
    status_of,
    timestamp,
    true_conditions,
    uid_of,
    with_condition,
    with_status,
)
from localup.karmada.works import binding_key, reported_health, reported_status

Status = dict[str, Any]

_APPLIED: Final = Condition("FullyApplied", "True", "FullyAppliedSuccess", "All works have been successfully applied")

_NOT_APPLIED: Final = Condition(
    "FullyApplied",
    "False",
    "FullyAppliedFailed",
    "Failed to apply all works, see status.aggregatedStatus for details",
)


def aggregate_status(binding: Object, works: Iterable[Object], *, now: float) -> Object:
    """Return *binding* with the status of its works, sorted by cluster name."""
    items = sorted(
        (_item(work) for work in works if not is_terminating(work)), key=lambda item: str(item["clusterName"])
    )
    said = _APPLIED if _fully_applied(items, target_names(binding)) else _NOT_APPLIED
    conditions = with_condition(status_of(binding).get("conditions") or (), said, now=now)
    return with_status(binding, aggregatedStatus=items or None, conditions=conditions)


def template_status(template: Object, binding: Object, *, now: float, stale: bool = True) -> Object:
    """Return *template* with the status of its binding.

    If the binding has no status, the *stale* template status is kept or removed.
    """
    kind = kind_of(template)
    items = [item for item in status_of(binding).get("aggregatedStatus") or () if item.get("status")]
    if not items and not stale:
        return {name: value for name, value in template.items() if name != "status"}
    if not items or kind is None or kind not in _AGGREGATORS:
        return template
    if kind == VOLCANO_JOB and len(items) == 1:
        return {**template, "status": items[0]["status"]}
    status = _AGGREGATORS[kind](template, items, now)
    return {**template, "status": {name: value for name, value in status.items() if value}}


def _item(work: Object) -> dict[str, Any]:
    conditions = status_of(work).get("conditions") or ()
    cluster = names.cluster_of(key_of(work).namespace)
    if not is_true(conditions, "Applied"):
        said = condition(conditions, "Applied")
        message = {"appliedMessage": said["message"]} if said and said["message"] else {}
        return {"applied": False, **message, "clusterName": cluster, "health": "Unknown"}
    status = reported_status(work)
    reported = {"status": status} if status else {}
    return {"applied": True, "clusterName": cluster, "health": reported_health(work), **reported}


def _fully_applied(items: Sequence[Object], targets: Sequence[str]) -> bool:
    return bool(targets) and {item["clusterName"] for item in items if item["applied"]} == set(targets)


def _volcano_job(_: Object, items: Sequence[Object], now: float) -> Status:
    """Aggregate several clusters: the phase is set only if one has failed or all have completed."""
    counts = ("minAvailable", "pending", "running", "succeeded", "failed", "terminating", "unknown", "retryCount")
    phases = {str(item["clusterName"]): (item["status"].get("state") or {}).get("phase") for item in items}
    failed = [name for name, phase in phases.items() if phase in {"Failed", "Aborted"}]
    status: Status = {**_sum_counts(items, counts), "state": {}}
    if failed:
        status["state"] = _state("Failed", "VolcanoJobFailed", f"Job failed in clusters: {','.join(failed)}", now)
    elif set(phases.values()) == {"Completed"}:
        status["state"] = _state("Completed", "Completed", "Job completed successfully", now)
    return status


def _replicated(template: Object, items: Sequence[Object], _: float) -> Status:
    counts = ("availableReplicas", "readyReplicas", "unavailableReplicas", "updatedReplicas", "currentReplicas")
    replicas = _sum_counts(items, ("replicas",))
    return {
        **status_of(template),
        **_sum_counts(items, counts),
        **replicas,
        "observedGeneration": generation_of(template),
    }


def _batch_job(_: Object, items: Sequence[Object], now: float) -> Status:
    status: Status = _sum_counts(items, ("active", "failed", "ready", "succeeded"))
    status["startTime"] = min(item["status"]["startTime"] for item in items if item["status"].get("startTime"))
    said = [item["status"].get("conditions") or () for item in items]
    if all(is_true(item, "Complete") for item in said):
        status["completionTime"] = max(item["status"]["completionTime"] for item in items)
        return status | {"conditions": true_conditions(("SuccessCriteriaMet", "Complete"), "Completed", now=now)}
    if any(is_true(item, "Failed") for item in said):
        return status | {"conditions": true_conditions(("FailureTarget", "Failed"), "JobFailed", now=now)}
    return status


def _sum_counts(items: Sequence[Object], counts: Sequence[str]) -> dict[str, int]:
    return {name: sum(int(item["status"].get(name, 0)) for item in items) for name in counts}


def _state(phase: str, reason: str, message: str, now: float) -> Object:
    return {"lastTransitionTime": timestamp(now), "message": message, "phase": phase, "reason": reason}


_AGGREGATORS: Final[Mapping[Kind, Callable[[Object, Sequence[Object], float], Status]]] = {
    VOLCANO_JOB: _volcano_job,
    DEPLOYMENT: _replicated,
    STATEFUL_SET: _replicated,
    BATCH_JOB: _batch_job,
}

log = structlog.get_logger()

_ATTEMPTS: Final = 10

_RETRY_SECONDS: Final = 0.05


class BindingStatusController(ObjectController):
    """Aggregates status for bindings of one kind."""

    def __init__(self, cache: ControlPlaneCache, bindings: Store, *, stale: bool) -> None:
        super().__init__(cache, bindings)
        self._stale = stale
        cache.works.add_event_handler(self._work_changed)

    def _work_changed(self, old: Object | None, new: Object | None) -> None:
        if old is None or new is None or status_of(old) != status_of(new):
            key = binding_key(new or old or {})
            if bool(key.namespace) == (self.store is self.cache.bindings):
                self.queue.add(key)

    def concerns(self, old: Object | None, new: Object) -> bool:
        """Return whether the template of a scheduled binding changed, or the stand-in was restarted."""
        if "lastScheduledTime" not in status_of(new):
            return False
        return old is None or _template_version(old) != _template_version(new)

    async def reconcile(self, key: Key) -> None:
        """Aggregate the status of one binding.

        Conflicts are retried here, because a requeue would clear a stale status.
        """
        for _ in range(_ATTEMPTS):
            with suppress(Conflict):
                await super().reconcile(key)
                return
            await asyncio.sleep(_RETRY_SECONDS)
        raise RetryError(f"binding {key} changed during every attempt")

    async def reconcile_object(self, item: Object) -> None:
        """Write the status of a binding and of its template."""
        binding = item
        updated = aggregate_status(binding, self.cache.works_of(binding), now=time.time())
        news = await self.cache.update(binding, updated, part=STATUS)
        # As in Karmada, a pass that writes keeps the template's status; only the next pass clears it.
        stale = self._stale and news is not binding
        binding = news
        template = self.cache.template_of(binding)
        if template is None or is_terminating(template) or owner_of(binding) != uid_of(template):
            return
        said = template_status(template, binding, now=time.time(), stale=stale)
        await self.cache.update(template, said, part=STATUS)


def _template_version(binding: Object) -> str:
    return str(binding["spec"]["resource"].get("resourceVersion", ""))
