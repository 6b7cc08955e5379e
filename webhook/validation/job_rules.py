"""Validates new and updated jobs by Volcano's rules, and warns about resizes of running jobs (D7).

The rules are those of Volcano's own `/jobs/validate`, which runs in the members only: a job that violates them would be
admitted here and then refused there.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from controller.api.configuration import Resize
from controller.api.jobs import EstimateError, parse_running_estimate, plugin_argument
from controller.api.quantity import QuantityError, parse_quantity
from webhook.validation.job_types import (
    MAX_TASKS,
    MPI,
    LifecyclePolicy,
    ReviewedJob,
    ReviewedJobSpec,
    ReviewedPartitionPolicy,
    ReviewedTask,
    Volume,
)
from webhook.validation.pod import (
    MAX_NAME_LENGTH,
    is_label,
    is_label_value,
    is_subdomain,
    pod_violations,
    requests_whole_cpus,
)

ANY_EVENT = "*"

#: Events that users may name; OutOfSync, CommandIssued and PodRunning are internal to Volcano.
EVENTS = (
    ANY_EVENT,
    "PodPending",
    "PodFailed",
    "PodEvicted",
    "Unknown",
    "TaskCompleted",
    "TaskFailed",
    "JobUpdated",
)

ACTIONS = (
    "AbortJob",
    "RestartJob",
    "RestartTask",
    "RestartPod",
    "RestartPartition",
    "TerminateJob",
    "CompleteJob",
    "ResumeJob",
)

_VALID = f"valid events are [{' '.join(EVENTS)}], valid actions are [{' '.join(ACTIONS)}]"

#: Plugins of Volcano's job controller.
PLUGINS = ("env", "hcclrank", MPI, "pytorch", "ray", "ssh", "svc", "tensorflow")
TOPOLOGY_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
_AMBIGUOUS_TIER = "must not specify highestTierAllowed and highestTierName simultaneously: remove one"
#: Phases in which no cluster runs the job; its requests are charged again if it is admitted later.
INACTIVE_PHASES = frozenset({"", "Aborting", "Aborted", "Completed", "Failed", "Terminating", "Terminated"})
_MUTABLE_FIELDS = ("minAvailable", "priorityClassName")
_MUTABLE_TASK_FIELDS = ("replicas", "minAvailable")
_QUANTITY_FIELDS = frozenset({"requests", "limits", "overhead"})
_SPEC = msgspec.json.Decoder(dict[str, Any])


def lifecycle_policy_violations(policies: Iterable[LifecyclePolicy] | None, path: str) -> Iterator[str]:
    """Yield why the policies at *path* are invalid, up to the first invalid policy, as Volcano does."""
    seen: set[str | int] = set()
    for policy in policies or ():
        if violation := _policy_violation(policy, seen):
            yield f"{path}: {violation}; {_VALID}"
            return
    events = {event for event in seen if isinstance(event, str)}
    if ANY_EVENT in events and len(events) > 1:
        yield f"{path}: if there's * here, no other policy should be here: list the events individually; {_VALID}"


def _policy_violation(policy: LifecyclePolicy, seen: set[str | int]) -> str | None:
    """Return why one policy is invalid, and add its events or exit code to *seen*."""
    events, code = policy.all_events, policy.exit_code
    if events and code is not None:
        return "must not specify event and exitCode simultaneously: split it into two policies"
    if events:
        return next(filter(None, (_event_violation(policy, event, seen) for event in events)), None)
    if code is None:
        return "either event and exitCode should be specified: set one"
    if code == 0:
        return "0 is not a valid error code: a pod that ends with 0 has succeeded"
    if code in seen:
        return f"duplicate exitCode {code}: remove one"
    seen.add(code)
    return None


def _event_violation(policy: LifecyclePolicy, event: str, seen: set[str | int]) -> str | None:
    if event not in EVENTS:
        return f"invalid policy event {event[:60]!r}"
    if policy.action not in ACTIONS:
        return f"invalid policy action {policy.action[:60]!r}"
    if event in seen:
        return f"duplicate event {event} across different policy: remove one"
    seen.add(event)
    return None


def job_violations(job: ReviewedJob, name: str) -> Iterator[str]:
    """Yield why Volcano would refuse the new *job*, each with a remedy."""
    spec = job.spec
    if violation := _fatal_violation(spec):
        yield violation
        return
    yield from _negative_violations(spec)
    if spec.network_topology and spec.network_topology.is_ambiguous:
        yield f"spec.networkTopology: {_AMBIGUOUS_TIER}"
    yield from _task_violations(spec.all_tasks, name)
    try:
        parse_running_estimate(spec.running_estimate)
    except EstimateError as error:
        yield f"spec.runningEstimate: {error}"
    if not is_label_value(name):
        yield f"create job with name {name[:253]!r} validate failed: use at most 63 letters, digits, '-', '_' and '.'"
    yield from _name_violations(spec)
    if spec.min_available > spec.replicas:
        yield (
            "job 'minAvailable' should not be greater than total replicas in tasks"
            f" ({spec.min_available} > {spec.replicas}): lower spec.minAvailable"
        )
    yield from lifecycle_policy_violations(spec.policies, "spec.policies")
    for plugin in spec.plugins or ():
        if plugin not in PLUGINS:
            yield f"unable to find job plugin: {plugin[:60]}: use one of {', '.join(PLUGINS)}"
    yield from _volume_violations(spec.volumes or ())
    if any(task.depends_on for task in spec.all_tasks) and not _is_acyclic(spec.all_tasks):
        yield (
            "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG):"
            " let tasks depend on existing tasks only, on each once, without a cycle"
        )


def partition_violations(task: ReviewedTask) -> Iterator[str]:
    """Yield why the partition policy of *task* is invalid."""
    policy = task.partition_policy
    if policy is None:
        return
    path = f"'partitionPolicy' of task: {task.name}:"
    if policy.total_partitions <= 0:
        yield f"{path} 'totalPartitions' must be greater than 0"
    if policy.partition_size <= 0:
        yield f"{path} 'partitionSize' must be greater than 0"
    if task.replicas != policy.total_partitions * policy.partition_size:
        yield f"{path} 'replicas' must be equal to 'totalPartitions' * 'partitionSize'"
    if _has_wrong_minimum(task, policy):
        yield f"{path} 'minAvailable' must be equal to 'minPartitions' * 'partitionSize'"
    if policy.network_topology and policy.network_topology.is_ambiguous:
        yield f"{path} {_AMBIGUOUS_TIER}"


def topology_violations(task: ReviewedTask, index: int) -> Iterator[str]:
    """Yield why *task* does not satisfy its topology policy."""
    if task.topology_policy not in ("", *TOPOLOGY_POLICIES):
        yield f"spec.task[{index}].topologyPolicy: use one of {', '.join(TOPOLOGY_POLICIES)}"
    if task.topology_policy in {"", "none"}:
        return
    for number, container in enumerate(task.template.spec.all_containers):
        if not requests_whole_cpus(container):
            yield f"the cpu request isn't an integer in spec.task[{index}] container[{number}]: request whole CPUs"


def _fatal_violation(spec: ReviewedJobSpec) -> str | None:
    """Return the violation after which Volcano checks no others, or ``None``."""
    if not spec.all_tasks:
        return "No task specified in job spec: add a task to spec.tasks"
    if spec.has_too_many_tasks:
        return f"spec.tasks has {len(spec.all_tasks)} tasks: use at most {MAX_TASKS}, with replicas for equal pods"
    return _missing_mpi_task(spec, "master")


def mpi_warning(spec: ReviewedJobSpec) -> str | None:
    """Return a warning about an MPI job that only Volcano 1.15 and newer accept."""
    violation = _missing_mpi_task(spec, "worker")
    return f"{violation}; Volcano 1.14 and older refuse the job in a member cluster" if violation else None


def _missing_mpi_task(spec: ReviewedJobSpec, role: str) -> str | None:
    """Return that the task of this *role* in an MPI job does not exist, or ``None``."""
    if MPI not in (spec.plugins or {}):
        return None
    arguments = (spec.plugins or {}).get(MPI) or ()
    task_name = plugin_argument(arguments, role) or role
    if task_name in {task.name for task in spec.all_tasks}:
        return None
    return f"The specified mpi {role} task was not found: add a task named {task_name[:63]!r}"


def _negative_violations(spec: ReviewedJobSpec) -> Iterator[str]:
    if spec.min_available < 0:
        yield "job 'minAvailable' must be >= 0"
    if spec.max_retry < 0:
        yield "'maxRetry' cannot be less than zero"
    if (spec.ttl_seconds_after_finished or 0) < 0:
        yield "'ttlSecondsAfterFinished' cannot be less than zero"


def _name_violations(spec: ReviewedJobSpec) -> Iterator[str]:
    """Yield which names can be no object's, because they are too long; other messages contain these names."""
    if len(spec.queue) > MAX_NAME_LENGTH:
        yield f"spec.queue has {len(spec.queue)} characters: use at most {MAX_NAME_LENGTH}"
    for name in sorted(spec.priority_classes):
        if len(name) > MAX_NAME_LENGTH:
            yield f"PriorityClass {name[:63]!r}… has {len(name)} characters: use at most {MAX_NAME_LENGTH}"


def _task_violations(tasks: Sequence[ReviewedTask], job: str) -> Iterator[str]:
    names: set[str] = set()
    for index, task in enumerate(tasks):
        yield from _size_violations(task, job)
        if not is_label(task.name):
            yield f"task name {task.name[:63]!r}: use at most 63 lower-case letters, digits and inner dashes"
        if task.name in names:
            yield f"duplicated task name {task.name}: give each task a different name"
            return
        names.add(task.name)
        yield from lifecycle_policy_violations(task.policies, f"spec.tasks[{index}].policies")
        pod_name = f"{job}-{task.name}-{index}"
        if not is_label_value(pod_name):
            yield f"create pod with name {pod_name[:253]!r} validate failed: shorten the job's or the task's name"
        violations = pod_violations(task.template.spec)
        yield from (f"spec.task[{index}].{violation}" for violation in violations)
        yield from topology_violations(task, index)
        yield from partition_violations(task)


def _size_violations(task: ReviewedTask, job: str) -> Iterator[str]:
    if task.replicas < 0:
        yield f"'replicas' < 0 in task: {task.name}, job: {job}"
    if task.min_available is None:
        return
    if task.min_available < 0:
        yield f"'minAvailable' < 0 in task: {task.name}, job: {job}"
    elif task.min_available > task.replicas:
        yield (
            f"'minAvailable' is greater than 'replicas' in task: {task.name}, job: {job}"
            f" ({task.min_available} > {task.replicas}): lower it"
        )


def _has_wrong_minimum(task: ReviewedTask, policy: ReviewedPartitionPolicy) -> bool:
    expected = policy.min_partitions * policy.partition_size
    return policy.min_partitions > 0 and task.min_available is not None and task.min_available != expected


def _volume_violations(volumes: Sequence[Volume]) -> Iterator[str]:
    """Yield why the volumes are invalid, up to the first invalid volume, as Volcano does."""
    paths: set[str] = set()
    for volume in volumes:
        if violation := _volume_violation(volume, paths):
            yield f"spec.volumes: {violation}"
            return
        paths.add(volume.mount_path)


def _volume_violation(volume: Volume, paths: set[str]) -> str | None:
    name = volume.volume_claim_name
    if not volume.mount_path:
        return "mountPath is required"
    if volume.mount_path in paths:
        return f"duplicated mountPath: {volume.mount_path[:253]}"
    if volume.volume_claim is None and not name:
        return "either VolumeClaim or VolumeClaimName must be specified"
    if volume.volume_claim is not None and name:
        return "conflict: volumeClaimName is for an existing claim, volumeClaim for a new one: remove one"
    if name and not is_subdomain(name):
        return f"invalid VolumeClaimName {name[:253]!r}: use lower-case letters, digits, inner dashes and dots"
    return None


def _is_acyclic(tasks: Sequence[ReviewedTask]) -> bool:
    """Return whether the dependencies of the tasks form an acyclic graph of existing tasks, without repetitions."""
    listed = {task.name: task.depends_on.name or () if task.depends_on else () for task in tasks}
    dependencies = {name: frozenset(names) for name, names in listed.items()}
    if any(len(names) > len(dependencies[name]) for name, names in listed.items()):
        return False  # Volcano counts each repetition as a dependency that is never met
    if not all(names <= dependencies.keys() for names in dependencies.values()):
        return False
    try:
        TopologicalSorter(dependencies).prepare()
    except CycleError:
        return False
    return True


class _Object(msgspec.Struct):
    spec: msgspec.Raw = msgspec.Raw(b"{}")


_OBJECT = msgspec.json.Decoder(_Object)


def update_violations(old: ReviewedJob, new: ReviewedJob) -> Iterator[str]:
    """Yield why the new sizes are invalid, and whether tasks were added or removed."""
    spec = new.spec
    for index, task in enumerate(spec.all_tasks):
        if task.replicas < 0:
            yield f"'replicas' must be >= 0 in task: {task.name}"
        if task.min_available is not None and not 0 <= task.min_available <= task.replicas:
            yield f"'minAvailable' must be >= 0 and <= 'replicas' in task: {task.name}"
        yield from partition_violations(task)
        yield from topology_violations(task, index)
    if spec.min_available > spec.replicas:
        yield (
            f"job 'minAvailable' must not be greater than total replicas ({spec.min_available} > {spec.replicas}):"
            " lower spec.minAvailable, too; a new job without it gets the number of its pods"
        )
    if spec.min_available < 0:
        yield "job 'minAvailable' must be >= 0"
    if len(old.spec.all_tasks) != len(spec.all_tasks):
        yield "job updates may not add or remove tasks: delete the job and create it again"


def changed_immutable_fields(old: msgspec.Raw, new: msgspec.Raw) -> Iterator[str]:
    """Yield the immutable fields of the spec that differ between *old* and *new*."""
    before, after = _immutable_fields(old), _immutable_fields(new)
    yield from (
        f"spec.{name[:60]}"
        for name in sorted(before.keys() | after.keys())
        if not _is_equal(before.get(name), after.get(name))
    )


def resize_warning(old: ReviewedJob, new: ReviewedJob, resize: Resize) -> str | None:
    """Return a warning if a running job requests more than it was admitted with, or ``None``."""
    increases = [
        f"{after.name} {before.replicas} -> {after.replicas}"
        for before, after in zip(old.spec.all_tasks, new.spec.all_tasks, strict=False)
        if after.replicas > before.replicas
    ]
    if not increases or old.phase in INACTIVE_PHASES:
        return None
    after = f"after {_format_duration(resize.grace_period)}"
    end = f"is evicted {after} and queues again" if resize.action == "Evict" else "continues to run and is reported"
    return (
        f"the running job is resized ({', '.join(increases)[:60]}): the resize is decided like a new admission;"
        f" if the queue has no free quota, the job is charged in full, is the first victim, and {end}"
    )


def _immutable_fields(job: msgspec.Raw) -> dict[str, Any]:
    """Return the spec of *job* without its mutable fields."""
    spec = _SPEC.decode(_OBJECT.decode(job).spec)
    for name in _MUTABLE_FIELDS:
        spec.pop(name, None)
    for task in _objects(spec.get("tasks")):
        for name in _MUTABLE_TASK_FIELDS:
            task.pop(name, None)
    for volume in _objects(spec.get("volumes")):
        if volume.get("volumeClaim") is not None:
            volume.pop("volumeClaimName", None)  # written by Volcano's controller
    return spec


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _is_equal(one: Any, other: Any) -> bool:
    """Compare as Kubernetes does: a missing value, an empty list and an empty map are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_is_equal_field(name, one.get(name), other.get(name)) for name in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    return bool(one == other) or (_is_empty(one) and _is_empty(other))


def _is_equal_field(name: str, one: Any, other: Any) -> bool:
    if name in _QUANTITY_FIELDS and isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return all(_is_equal_quantity(resource, one[resource], other[resource]) for resource in one)
    return _is_equal(one, other)


def _is_equal_quantity(resource: str, one: Any, other: Any) -> bool:
    try:
        return parse_quantity(resource, one) == parse_quantity(resource, other)
    except (QuantityError, TypeError):
        return bool(one == other)


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {}) or value is False or (value == 0 and not isinstance(value, bool))


def _format_duration(duration: timedelta) -> str:
    seconds = int(duration.total_seconds())
    return f"{seconds // 60}m" if seconds and seconds % 60 == 0 else f"{seconds}s"
