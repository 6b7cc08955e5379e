"""Reads the progress of a workload from the status that a cluster reports."""

import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from controller.cache.integrations import FieldPath, FinishedRule
from controller.cache.objects import BATCH_JOB, POD, VOLCANO_JOB, ClusterProgress, GroupKind, WorkloadPhase
from controller.cache.translate.units import to_milliseconds
from controller.engine.state.clusters import ClusterName

#: Status fields of kinds without a phase that count running pods.
_POD_COUNT_FIELDS = ("readyReplicas", "ready", "active")
#: Status fields of a Kubernetes Job that count ended pods.
_ENDED_POD_COUNT_FIELDS = ("succeeded", "failed")
#: Status field of Kubeflow's jobs: counts of pods, by type of replica.
_REPLICA_STATUSES = "replicaStatuses"
#: Kinds whose status shows whether they have started, even where it contains no count and no phase.
_KINDS_THAT_REPORT_STARTS = frozenset(
    {VOLCANO_JOB, BATCH_JOB, POD, *map(GroupKind, ("Deployment.apps", "StatefulSet.apps", "ReplicaSet.apps"))}
)
#: Status field of Deployments and StatefulSets, added by Karmada.
_TEMPLATE_GENERATION = "resourceTemplateGeneration"
#: Pods in these phases hold no resources.
_FINISHED_POD_PHASES = frozenset({"Succeeded", "Failed"})
#: Phases and conditions of workloads that finished without success.
_FAILED_PHASES = frozenset({"Failed", "Terminated"})
#: Limits of a reported status; more than any member cluster runs.
_MAX_TASKS = 1000
_MAX_PODS = 10**6
#: Limit of the message why a Work cannot be applied, which a member cluster writes; in characters.
_MAX_ERROR = 600
#: Phases that a record contains of a workload whose Work cannot be applied.
_RECORDED_PHASES = {
    str(phase): phase for phase in (WorkloadPhase.WAITING, WorkloadPhase.RUNNING, WorkloadPhase.FINISHED)
}


def read_progress(
    cluster: ClusterName, status: msgspec.Raw, kind: GroupKind, rule: FinishedRule
) -> tuple[ClusterProgress, int | None]:
    """Return the progress in the *status* that *cluster* reports of a workload of *kind*, and when it finished there.

    The time is that of the cluster's clock in milliseconds; ``None`` if it has not finished, or if unknown. An
    unreadable status has no progress.
    """
    try:
        document = msgspec.json.decode(status)
    except (ValueError, RecursionError):
        return ClusterProgress(cluster, WorkloadPhase.WAITING), None
    phase = _phase(document, rule)
    is_finished = phase is WorkloadPhase.FINISHED
    replicas = _bounded_count(value_at(document, ("replicas",)))
    generation = value_at(document, (_TEMPLATE_GENERATION,))
    progress = ClusterProgress(
        cluster,
        phase,
        _has_run(document, kind) or _may_have_started(document, kind, rule),
        _pods(document),
        replicas,
        failed=is_finished and _has_failed(document, rule),
        outdated_replicas=_outdated(document, replicas),
        template_generation=generation if isinstance(generation, int) else None,
    )
    return progress, _ended_at(document, rule) if is_finished else None


def read_unapplied(cluster: ClusterName, message: str, last_phase: str) -> ClusterProgress:
    """Return the progress in a *cluster* where the Work cannot be applied, as *message* says: no status is reported.

    *last_phase* is that of the record, empty if it is unknown.
    """
    phase = _RECORDED_PHASES.get(last_phase, WorkloadPhase.UNKNOWN)
    error = " ".join("".join(char if char.isprintable() else " " for char in message[:_MAX_ERROR]).split())
    return ClusterProgress(cluster, phase, phase is WorkloadPhase.RUNNING, apply_error=error or "no reason is given")


def _outdated(document: Any, replicas: int) -> int:
    """Return how many of *replicas* have an earlier template; Karmada leaves ``updatedReplicas`` out where it is 0."""
    if not replicas or not (_TEMPLATE_GENERATION in document or "updatedReplicas" in document):
        return 0
    return max(replicas - _bounded_count(document.get("updatedReplicas")), 0)


def _phase(document: Any, rule: FinishedRule) -> WorkloadPhase:
    phase = value_at(document, rule.path) if rule.path else None
    if (isinstance(phase, str) and phase in rule.values) or _true_condition_types(document) & rule.conditions:
        return WorkloadPhase.FINISHED
    if phase == WorkloadPhase.ABORTED:
        return WorkloadPhase.ABORTED
    is_running = _is_phase(phase, WorkloadPhase.RUNNING) or _has_active_pods(document)
    return WorkloadPhase.RUNNING if is_running else WorkloadPhase.WAITING


def _is_phase(value: Any, phase: str) -> bool:
    """Whether *value* is *phase*, which some kinds write in capitals."""
    return isinstance(value, str) and value.lower() == phase.lower()


def _has_failed(document: Any, rule: FinishedRule) -> bool:
    """Whether the phase, or a condition, of a finished workload says that it did not succeed."""
    phase = value_at(document, rule.path) if rule.path else None
    types = _true_condition_types(document) & rule.conditions
    return (isinstance(phase, str) and phase in _FAILED_PHASES) or bool(types & _FAILED_PHASES)


def value_at(document: Any, path: FieldPath) -> Any:
    """Return the value at *path* of a JSON document, ``None`` if there is none."""
    for member in path:
        if not isinstance(document, Mapping):
            return None
        document = document.get(member)
    return document


def _has_run(document: Any, kind: GroupKind) -> bool:
    """Whether the conditions of a Volcano Job, its past phases, include the running one, or a Kubernetes Job had pods.

    A Kubernetes Job has no active pods while it waits to retry failed ones.
    """
    if kind == BATCH_JOB:
        return any(_bounded_count(value_at(document, (name,))) for name in _ENDED_POD_COUNT_FIELDS)
    conditions = value_at(document, ("conditions",))
    return isinstance(conditions, list) and any(
        value_at(condition, ("status",)) == WorkloadPhase.RUNNING for condition in conditions
    )


def _may_have_started(document: Any, kind: GroupKind, rule: FinishedRule) -> bool:
    """Whether the workload may run although its status has no phase and no count of pods that say so (R1)."""
    if not isinstance(document, Mapping) or not document or kind in _KINDS_THAT_REPORT_STARTS:
        return False
    is_waiting = bool(rule.path) and _is_phase(value_at(document, rule.path), "Pending")
    return not is_waiting and document.keys().isdisjoint((*_POD_COUNT_FIELDS, _REPLICA_STATUSES, "replicas"))


def _pods(document: Any) -> tuple[tuple[str, int], ...]:
    """Return the unfinished pods of each task, from a Volcano Job's ``taskStatusCount``."""
    tasks = value_at(document, ("taskStatusCount",))
    if not isinstance(tasks, Mapping):
        return ()
    counted = ((str(name), _active_pods(value_at(tasks, (name, "phase")))) for name in islice(tasks, _MAX_TASKS))
    return tuple(sorted((sys.intern(name), count) for name, count in counted if count))


def _active_pods(phases: Any) -> int:
    if not isinstance(phases, Mapping):
        return 0
    return sum(_bounded_count(count) for name, count in phases.items() if name not in _FINISHED_POD_PHASES)


def _bounded_count(count: Any) -> int:
    """Return a number of pods, zero for an invalid value."""
    return min(count, _MAX_PODS) if isinstance(count, int) and count > 0 else 0


def _true_condition_types(document: Any) -> frozenset[str]:
    return frozenset(str(value_at(condition, ("type",))) for condition in _true_conditions(document))


def _true_conditions(document: Any) -> Iterator[Any]:
    conditions = value_at(document, ("conditions",))
    if isinstance(conditions, list):
        yield from (condition for condition in conditions if value_at(condition, ("status",)) == "True")


def _ended_at(document: Any, rule: FinishedRule) -> int | None:
    """Return the transition time next to the phase, or of the condition, that says that it finished."""
    phase_objects = [value_at(document, rule.path[:-1])] if rule.path else []
    finished_conditions = (
        condition for condition in _true_conditions(document) if str(value_at(condition, ("type",))) in rule.conditions
    )
    times = (
        _parse_time(value_at(condition, ("lastTransitionTime",)))
        for condition in (*phase_objects, *finished_conditions)
    )
    return max((time for time in times if time is not None), default=None)


def _parse_time(text: Any) -> int | None:
    try:
        return to_milliseconds(msgspec.convert(text, datetime))
    except (msgspec.ValidationError, OverflowError):
        return None


def _has_active_pods(document: Any) -> bool:
    by_type = value_at(document, (_REPLICA_STATUSES,))
    counts = [value_at(document, (name,)) for name in _POD_COUNT_FIELDS]
    if isinstance(by_type, Mapping):
        counts += (value_at(replicas, ("active",)) for replicas in by_type.values())
    return any(isinstance(count, int) and count > 0 for count in counts)
