"""Validates new jobs by Volcano's rules.

The rules are those of Volcano's own `/jobs/validate`, which runs in the members only: a job that violates them would be
admitted here and then refused there.
"""

from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

from webhook.dns_names import is_label, is_label_value, is_subdomain
from webhook.job_types import MAX_TASKS, MPI, Job, PartitionPolicy, Spec, Task, Volume
from webhook.lifecycle_policy_validation import lifecycle_policy_violations
from webhook.pod_validation import pod_violations, requests_whole_cpus

#: Plugins of Volcano's job controller.
PLUGINS = ("env", "hcclrank", MPI, "pytorch", "ray", "ssh", "svc", "tensorflow")
TOPOLOGY_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
_AMBIGUOUS_TIER = "must not specify highestTierAllowed and highestTierName simultaneously: remove one"


def job_violations(job: Job, name: str) -> Iterator[str]:
    """Yield why Volcano would refuse the new *job*, each with a remedy."""
    spec = job.spec
    if violation := _fatal_violation(spec):
        yield violation
        return
    yield from _negative_violations(spec)
    if spec.network_topology and spec.network_topology.is_ambiguous:
        yield f"spec.networkTopology: {_AMBIGUOUS_TIER}"
    yield from _task_violations(spec.all_tasks, name)
    if not is_label_value(name):
        yield f"create job with name {name[:253]!r} validate failed: use at most 63 letters, digits, '-', '_' and '.'"
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
            " let tasks depend on existing tasks only, without a cycle"
        )


def partition_violations(task: Task) -> Iterator[str]:
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


def topology_violations(task: Task, index: int) -> Iterator[str]:
    """Yield why *task* does not satisfy its topology policy."""
    if task.topology_policy not in ("", *TOPOLOGY_POLICIES):
        yield f"spec.task[{index}].topologyPolicy: use one of {', '.join(TOPOLOGY_POLICIES)}"
    if task.topology_policy in {"", "none"}:
        return
    for number, container in enumerate(task.template.spec.all_containers):
        if not requests_whole_cpus(container):
            yield f"the cpu request isn't an integer in spec.task[{index}] container[{number}]: request whole CPUs"


def _fatal_violation(spec: Spec) -> str | None:
    """Return the violation after which Volcano checks no others, or ``None``."""
    if not spec.all_tasks:
        return "No task specified in job spec: add a task to spec.tasks"
    if spec.has_too_many_tasks:
        return f"spec.tasks has {len(spec.all_tasks)} tasks: use at most {MAX_TASKS}, with replicas for equal pods"
    arguments = (spec.plugins or {}).get(MPI, ()) or () if MPI in (spec.plugins or {}) else None
    if arguments is None:
        return None
    for role in ("master", "worker"):
        task_name = next((text.partition("=")[2] for text in arguments if text.startswith(f"--{role}=")), role)
        if task_name not in {task.name for task in spec.all_tasks}:
            return f"The specified mpi {role} task was not found: add a task named {task_name[:63]!r}"
    return None


def _negative_violations(spec: Spec) -> Iterator[str]:
    if spec.min_available < 0:
        yield "job 'minAvailable' must be >= 0"
    if spec.max_retry < 0:
        yield "'maxRetry' cannot be less than zero"
    if (spec.ttl_seconds_after_finished or 0) < 0:
        yield "'ttlSecondsAfterFinished' cannot be less than zero"


def _task_violations(tasks: Sequence[Task], job: str) -> Iterator[str]:
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


def _size_violations(task: Task, job: str) -> Iterator[str]:
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


def _has_wrong_minimum(task: Task, policy: PartitionPolicy) -> bool:
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


def _is_acyclic(tasks: Sequence[Task]) -> bool:
    """Return whether the dependencies of the tasks form an acyclic graph of existing tasks."""
    dependencies = {
        task.name: frozenset(task.depends_on.name or ()) if task.depends_on else frozenset() for task in tasks
    }
    if not all(names <= dependencies.keys() for names in dependencies.values()):
        return False
    try:
        TopologicalSorter(dependencies).prepare()
    except CycleError:
        return False
    return True
