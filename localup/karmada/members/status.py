"""Status of manifests in a member cluster, in the format of their kinds.

Zero-valued fields are omitted.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from localup.karmada import names
from localup.karmada.members.member import Phase, Run
from localup.karmada.members.workloads import Workload, min_available
from localup.karmada.objects import (
    BATCH_JOB,
    DEPLOYMENT,
    STATEFUL_SET,
    VOLCANO_JOB,
    Kind,
    Object,
    annotations_of,
    kind_of,
    seconds_of,
    spec_of,
    timestamp,
    true_conditions,
)

Status = dict[str, Any]

#: Karmada treats a Volcano Job as healthy in every phase except Failed (facts, §3).
_UNHEALTHY: Final = frozenset({Phase.FAILED})


def status_in_member(manifest: Object, run: Run) -> Status:
    """Return the status of the manifest in its cluster."""
    kind = kind_of(manifest)
    reflected = _REFLECTORS[kind](manifest, run) if kind is not None and kind in _REFLECTORS else {}
    return {name: value for name, value in reflected.items() if value}


def health(manifest: Object, run: Run) -> str:
    """Return Karmada's health for that status."""
    if kind_of(manifest) not in _REFLECTORS:
        return "Unknown"
    if kind_of(manifest) in {DEPLOYMENT, STATEFUL_SET}:
        return "Unhealthy" if run.waiting else "Healthy"
    return "Unhealthy" if run.phase in _UNHEALTHY else "Healthy"


def run_from_status(manifest: Object, status: Mapping[str, Any], workload: Workload) -> Run | None:
    """Return the run described by a Volcano Job's status, for a restarted member; ``None`` if it is pending."""
    state = status.get("state") or {}
    if kind_of(manifest) != VOLCANO_JOB or state.get("phase", Phase.PENDING) == Phase.PENDING:
        return None
    pods = tuple(task.gang_minimum for task in workload.tasks)
    return Run(workload, Phase(state["phase"]), seconds_of(state["lastTransitionTime"]), pods)


def _volcano_job(manifest: Object, run: Run) -> Status:
    counted = {Phase.RUNNING: "running", Phase.COMPLETED: "succeeded", Phase.FAILED: "failed"}
    counts = {counted[run.phase]: run.running} if run.phase in counted else {}
    return {
        **counts,
        "minAvailable": min_available(manifest),
        "pending": run.waiting,
        "state": {"lastTransitionTime": timestamp(run.since), "phase": str(run.phase)},
    }


def _deployment(manifest: Object, run: Run) -> Status:
    return {
        "availableReplicas": run.running,
        "observedGeneration": _generation(manifest),
        "readyReplicas": run.running,
        "replicas": _replicas(manifest),
        "unavailableReplicas": run.waiting,
        "updatedReplicas": _replicas(manifest),
    }


def _stateful_set(manifest: Object, run: Run) -> Status:
    return {
        "availableReplicas": run.running,
        "currentReplicas": _replicas(manifest),
        "observedGeneration": _generation(manifest),
        "readyReplicas": run.running,
        "replicas": _replicas(manifest),
        "updatedReplicas": _replicas(manifest),
    }


def _batch_job(_: Object, run: Run) -> Status:
    if run.phase is Phase.RUNNING:
        return {"active": run.running + run.waiting, "ready": run.running, "startTime": timestamp(run.since)}
    began = timestamp(run.since - (run.workload.run_seconds or 0))
    if run.phase is Phase.COMPLETED:
        ended = true_conditions(("SuccessCriteriaMet", "Complete"), "CompletionsReached", now=run.since)
        return {
            "completionTime": timestamp(run.since),
            "conditions": ended,
            "startTime": began,
            "succeeded": run.running,
        }
    ended = true_conditions(("FailureTarget", "Failed"), "BackoffLimitExceeded", now=run.since)
    return {"conditions": ended, "failed": run.running, "startTime": began}


def _generation(manifest: Object) -> int:
    return int(annotations_of(manifest).get(names.TEMPLATE_GENERATION, "0"))


def _replicas(manifest: Object) -> int:
    return int(spec_of(manifest).get("replicas", 1))


_REFLECTORS: Final[Mapping[Kind, Callable[[Object, Run], Status]]] = {
    VOLCANO_JOB: _volcano_job,
    DEPLOYMENT: _deployment,
    STATEFUL_SET: _stateful_set,
    BATCH_JOB: _batch_job,
}
