"""Status of manifests in a member cluster, of bindings and of templates, in the format of their kinds.

Zero-valued fields are omitted. A template keeps its last status when its binding loses all reported status, so an
evicted job stays `Running` (facts, §1).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from controller.api.keys import JOBS
from localup.karmada.member import Phase, Run
from localup.karmada.objects import (
    BATCH_JOBS,
    REPLICATED,
    TEMPLATE_GENERATION,
    Condition,
    Object,
    annotations_of,
    cluster_of,
    condition,
    generation_of,
    is_a,
    is_terminating,
    is_true,
    key_of,
    nonempty,
    seconds_of,
    spec_of,
    status_of,
    target_names,
    timestamp,
    with_condition,
    with_conditions,
    with_status,
)
from localup.karmada.workloads import Workload, min_available

Status = dict[str, Any]

_PODS: Final = {Phase.RUNNING: "running", Phase.COMPLETED: "succeeded", Phase.FAILED: "failed"}
_REPLICA_COUNTS: Final = (
    *("availableReplicas", "readyReplicas", "unavailableReplicas", "updatedReplicas", "currentReplicas", "replicas"),
)
_JOB_COUNTS: Final = (
    *("minAvailable", "pending", "running", "succeeded", "failed", "terminating", "unknown", "retryCount"),
)
_APPLIED: Final = Condition("FullyApplied", "True", "FullyAppliedSuccess", "All works have been successfully applied")
_NOT_APPLIED: Final = Condition(
    *("FullyApplied", "False", "FullyAppliedFailed"),
    "Failed to apply all works, see status.aggregatedStatus for details",
)


def status_in_member(manifest: Object, run: Run) -> Status:
    """Return the status of the manifest in its cluster."""
    if is_a(manifest, JOBS):
        state = {"lastTransitionTime": timestamp(run.since), "phase": str(run.phase)}
        pods = {_PODS[run.phase]: run.running} if run.phase in _PODS else {}
        return nonempty({**pods, "minAvailable": min_available(manifest), "pending": run.waiting, "state": state})
    if is_a(manifest, BATCH_JOBS):
        is_suspended = spec_of(manifest).get("suspend") and not run.phase.is_final
        return nonempty(_suspended_job(run) if is_suspended else _batch_job(run))
    if not is_a(manifest, *REPLICATED):
        return {}
    replicas = int(spec_of(manifest).get("replicas", 1))
    return nonempty(
        {
            "availableReplicas": run.running,
            "observedGeneration": int(annotations_of(manifest).get(TEMPLATE_GENERATION, "0")),
            "readyReplicas": run.running,
            "replicas": replicas,
            "unavailableReplicas": run.waiting,
            "updatedReplicas": replicas,
        }
    )


def _suspended_job(run: Run) -> Status:
    return {"conditions": with_condition([], Condition("Suspended", "True", "JobSuspended"), now=run.since)}


def _batch_job(run: Run) -> Status:
    if run.phase is Phase.RUNNING:
        return {"active": run.running + run.waiting, "ready": run.running, "startTime": timestamp(run.since)}
    status: Status = {"startTime": timestamp(run.since - (run.workload.run_seconds or 0))}
    if run.phase is Phase.COMPLETED:
        ended = _ended(("SuccessCriteriaMet", "Complete"), "CompletionsReached", now=run.since)
        return {**status, "completionTime": timestamp(run.since), "conditions": ended, "succeeded": run.running}
    ended = _ended(("FailureTarget", "Failed"), "BackoffLimitExceeded", now=run.since)
    return {**status, "conditions": ended, "failed": run.running}


def _ended(types: Sequence[str], reason: str, *, now: float) -> list[Object]:
    """Return true conditions of *types*."""
    conditions: list[Object] = []
    for type_ in types:
        conditions = with_condition(conditions, Condition(type_, "True", reason), now=now)
    return conditions


def health(manifest: Object, run: Run) -> str:
    """Return Karmada's health for that status; a Volcano Job is healthy in every phase except Failed (facts, §3)."""
    if is_a(manifest, *REPLICATED):
        return "Unhealthy" if run.waiting else "Healthy"
    if is_a(manifest, JOBS, BATCH_JOBS):
        return "Unhealthy" if run.phase is Phase.FAILED else "Healthy"
    return "Unknown"


def run_from_status(manifest: Object, status: Mapping[str, Any], workload: Workload) -> Run | None:
    """Return the run described by the status of a job, for a restarted member; ``None`` if it is pending."""
    if is_a(manifest, BATCH_JOBS):
        return _run_of_batch_job(status, workload)
    state = status.get("state") or {}
    if not is_a(manifest, JOBS) or state.get("phase", Phase.PENDING) == Phase.PENDING:
        return None
    pods = tuple(task.gang_minimum for task in workload.tasks)
    return Run(workload, Phase(state["phase"]), seconds_of(state["lastTransitionTime"]), pods)


def _run_of_batch_job(status: Mapping[str, Any], workload: Workload) -> Run | None:
    conditions, pods = status.get("conditions") or (), tuple(0 for _ in workload.tasks)
    for type_, phase in (("Complete", Phase.COMPLETED), ("Failed", Phase.FAILED)):
        if (ended := condition(conditions, type_)) is not None:
            return Run(workload, phase, seconds_of(ended["lastTransitionTime"]), pods)
    begin = status.get("startTime")
    return Run(workload, Phase.RUNNING, seconds_of(begin), pods) if begin else None


def aggregate_status(binding: Object, works: Iterable[Object], *, now: float) -> Object:
    """Return *binding* with the status of its works, sorted by cluster name."""
    items = sorted((_item(work) for work in works if not is_terminating(work)), key=lambda item: item["clusterName"])
    targets = target_names(binding)
    is_applied = bool(targets) and {item["clusterName"] for item in items if item.get("applied")} == set(targets)
    updated = with_conditions(binding, _APPLIED if is_applied else _NOT_APPLIED, now=now)
    return with_status(updated, aggregatedStatus=items or None)


def _item(work: Object) -> Status:
    conditions = status_of(work).get("conditions") or ()
    cluster = cluster_of(key_of(work).namespace)
    if not is_true(conditions, "Applied"):
        said = condition(conditions, "Applied")
        message = {"appliedMessage": said["message"]} if said and said["message"] else {}
        return {**message, "clusterName": cluster, "health": "Unknown"}
    status = reported_status(work)
    reported = {"status": status} if status else {}
    return {"applied": True, "clusterName": cluster, "health": reported_health(work), **reported}


def template_status(template: Object, binding: Object, *, now: float, stale: bool = True) -> Object:
    """Return *template* with the status of its binding.

    If the binding has no status, the *stale* template status stays or is removed.
    """
    items = [item for item in status_of(binding).get("aggregatedStatus") or () if item.get("status")]
    if not items:
        return template if stale else {name: value for name, value in template.items() if name != "status"}
    statuses = [item["status"] for item in items]
    if is_a(template, JOBS):
        clusters = [str(item["clusterName"]) for item in items]
        status = statuses[0] if len(items) == 1 else nonempty(_volcano_job(clusters, statuses, now))
    elif is_a(template, *REPLICATED):
        counts = _sum_counts(statuses, _REPLICA_COUNTS)
        status = nonempty({**status_of(template), **counts, "observedGeneration": generation_of(template)})
    elif is_a(template, BATCH_JOBS):
        status = nonempty(_batch_jobs(statuses, now))
    else:
        return template
    return {**template, "status": status}


def _volcano_job(clusters: Sequence[str], statuses: Sequence[Object], now: float) -> Status:
    """Aggregate several clusters: the phase is set only if one has failed or all have completed."""
    phases = [(status.get("state") or {}).get("phase") for status in statuses]
    failed = [name for name, phase in zip(clusters, phases, strict=True) if phase in {"Failed", "Aborted"}]
    state = {}
    if failed:
        message = f"Job failed in clusters: {','.join(failed)}"
        state = {"phase": "Failed", "reason": "VolcanoJobFailed", "message": message}
    elif set(phases) == {"Completed"}:
        state = {"phase": "Completed", "reason": "Completed", "message": "Job completed successfully"}
    ended = {"state": {**state, "lastTransitionTime": timestamp(now)}} if state else {}
    return {**_sum_counts(statuses, _JOB_COUNTS), **ended}


def _batch_jobs(statuses: Sequence[Object], now: float) -> Status:
    status: Status = _sum_counts(statuses, ("active", "failed", "ready", "succeeded"))
    if begun := [item["startTime"] for item in statuses if item.get("startTime")]:
        status["startTime"] = min(begun)
    said = [item.get("conditions") or () for item in statuses]
    if all(is_true(item, "Complete") for item in said):
        status["completionTime"] = max(item["completionTime"] for item in statuses)
        status["conditions"] = _ended(("SuccessCriteriaMet", "Complete"), "Completed", now=now)
    elif any(is_true(item, "Failed") for item in said):
        status["conditions"] = _ended(("FailureTarget", "Failed"), "JobFailed", now=now)
    return status


def _sum_counts(statuses: Sequence[Object], counts: Sequence[str]) -> dict[str, int]:
    return {name: sum(int(status.get(name, 0)) for status in statuses) for name in counts}


def reported_status(work: Object) -> Object | None:
    """Return the manifest status reported by a Work."""
    reports = status_of(work).get("manifestStatuses") or ()
    return reports[0].get("status") if reports else None


def reported_health(work: Object) -> str:
    """Return the manifest health reported by a Work."""
    reports = status_of(work).get("manifestStatuses") or ()
    return str(reports[0].get("health", "Unknown")) if reports else "Unknown"
