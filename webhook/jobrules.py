"""Volcano's rules for a new job; reads and writes nothing.

They are those of Volcano's own `/jobs/validate`, which runs in the members only: what it would refuse there would
fail after it was admitted here.
"""

from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

from webhook.jobspec import MAX_TASKS, MPI, Job, PartitionPolicy, Spec, Task, Volume
from webhook.names import is_label, is_qualified, is_subdomain
from webhook.podrules import cpus_are_whole, pod_flaws
from webhook.policyrules import policy_flaws

#: Those that Volcano's job controller knows.
PLUGINS = ("env", "hcclrank", MPI, "pytorch", "ray", "ssh", "svc", "tensorflow")
TOPOLOGY_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
_TWICE = "must not specify highestTierAllowed and highestTierName simultaneously: keep one"


def job_flaws(job: Job, name: str) -> Iterator[str]:
    """Yield everything that keeps Volcano from taking the new *job*, each with what to do."""
    spec = job.spec
    if flaw := _first_flaw(spec):
        yield flaw
        return
    yield from _negative(spec)
    if spec.network_topology and spec.network_topology.is_ambiguous:
        yield f"spec.networkTopology: {_TWICE}"
    yield from _tasks_flaws(spec.all_tasks, name)
    if not is_qualified(name):
        yield f"create job with name {name[:253]!r} validate failed: use at most 63 letters, digits, '-', '_' and '.'"
    if spec.min_available > spec.replicas:
        yield (
            "job 'minAvailable' should not be greater than total replicas in tasks"
            f" ({spec.min_available} > {spec.replicas}): lower spec.minAvailable"
        )
    yield from policy_flaws(spec.policies, "spec.policies")
    for plugin in spec.plugins or ():
        if plugin not in PLUGINS:
            yield f"unable to find job plugin: {plugin[:60]}: there are {', '.join(PLUGINS)}"
    yield from _volume_flaws(spec.volumes or ())
    if any(task.depends_on for task in spec.all_tasks) and not _is_acyclic(spec.all_tasks):
        yield (
            "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG):"
            " let each task depend on other tasks only, and in no circle"
        )


def partition_flaws(task: Task) -> Iterator[str]:
    """Yield what is wrong with how *task* is cut into partitions."""
    cut = task.partition_policy
    if cut is None:
        return
    where = f"'partitionPolicy' of task: {task.name}:"
    if cut.total_partitions <= 0:
        yield f"{where} 'totalPartitions' must be greater than 0"
    if cut.partition_size <= 0:
        yield f"{where} 'partitionSize' must be greater than 0"
    if task.replicas != cut.total_partitions * cut.partition_size:
        yield f"{where} 'replicas' must be equal to 'totalPartitions' * 'partitionSize'"
    if _is_minimum_wrong(task, cut):
        yield f"{where} 'minAvailable' must be equal to 'minPartitions' * 'partitionSize'"
    if cut.network_topology and cut.network_topology.is_ambiguous:
        yield f"{where} {_TWICE}"


def topology_flaws(task: Task, place: int) -> Iterator[str]:
    """Yield why *task* cannot be placed by its topology policy."""
    if task.topology_policy not in ("", *TOPOLOGY_POLICIES):
        yield f"spec.task[{place}].topologyPolicy: write one of {', '.join(TOPOLOGY_POLICIES)}"
    if task.topology_policy in {"", "none"}:
        return
    for number, container in enumerate(task.template.spec.all_containers):
        if not cpus_are_whole(container):
            yield f"the cpu request isn't an integer in spec.task[{place}] container[{number}]: ask for whole CPUs"


def _first_flaw(spec: Spec) -> str | None:
    """Return what Volcano refuses a job for without looking further."""
    if not spec.all_tasks:
        return "No task specified in job spec: give spec.tasks a task"
    if spec.has_too_many_tasks:
        return f"spec.tasks has {len(spec.all_tasks)} tasks: use at most {MAX_TASKS}, with replicas for equal pods"
    arguments = (spec.plugins or {}).get(MPI, ()) or () if MPI in (spec.plugins or {}) else None
    if arguments is None:
        return None
    for role in ("master", "worker"):
        wanted = next((text.partition("=")[2] for text in arguments if text.startswith(f"--{role}=")), role)
        if wanted not in {task.name for task in spec.all_tasks}:
            return f"The specified mpi {role} task was not found: name a task {wanted[:63]!r}"
    return None


def _negative(spec: Spec) -> Iterator[str]:
    if spec.min_available < 0:
        yield "job 'minAvailable' must be >= 0"
    if spec.max_retry < 0:
        yield "'maxRetry' cannot be less than zero"
    if (spec.ttl_seconds_after_finished or 0) < 0:
        yield "'ttlSecondsAfterFinished' cannot be less than zero"


def _tasks_flaws(tasks: Sequence[Task], job: str) -> Iterator[str]:
    names: set[str] = set()
    for place, task in enumerate(tasks):
        yield from _size_flaws(task, job)
        if not is_label(task.name):
            yield f"task name {task.name[:63]!r}: use at most 63 small letters, digits and inner dashes"
        if task.name in names:
            yield f"duplicated task name {task.name}: give each task a name of its own"
            return
        names.add(task.name)
        yield from policy_flaws(task.policies, f"spec.tasks[{place}].policies")
        pod = f"{job}-{task.name}-{place}"
        if not is_qualified(pod):
            yield f"create pod with name {pod[:253]!r} validate failed: shorten the job's or the task's name"
        flaws = pod_flaws(task.template.spec)
        yield from (f"spec.task[{place}].{flaw}" for flaw in flaws)
        yield from topology_flaws(task, place)
        yield from partition_flaws(task)


def _size_flaws(task: Task, job: str) -> Iterator[str]:
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


def _is_minimum_wrong(task: Task, cut: PartitionPolicy) -> bool:
    wanted = cut.min_partitions * cut.partition_size
    return cut.min_partitions > 0 and task.min_available is not None and task.min_available != wanted


def _volume_flaws(volumes: Sequence[Volume]) -> Iterator[str]:
    """Yield what is wrong with the volumes; as Volcano does, no further than the first that is wrong."""
    paths: set[str] = set()
    for volume in volumes:
        if flaw := _volume_flaw(volume, paths):
            yield f"spec.volumes: {flaw}"
            return
        paths.add(volume.mount_path)


def _volume_flaw(volume: Volume, paths: set[str]) -> str | None:
    name = volume.volume_claim_name
    if not volume.mount_path:
        return "mountPath is required"
    if volume.mount_path in paths:
        return f"duplicated mountPath: {volume.mount_path[:253]}"
    if volume.volume_claim is None and not name:
        return "either VolumeClaim or VolumeClaimName must be specified"
    if volume.volume_claim is not None and name:
        return "conflict: volumeClaimName is for an existing claim, volumeClaim for a new one: keep one"
    if name and not is_subdomain(name):
        return f"invalid VolumeClaimName {name[:253]!r}: use small letters, digits, inner dashes and dots"
    return None


def _is_acyclic(tasks: Sequence[Task]) -> bool:
    """Say whether the tasks can be brought into an order; a name that is no task stands in the way of all orders."""
    others = {task.name: frozenset(task.depends_on.name or ()) if task.depends_on else frozenset() for task in tasks}
    if not all(names <= others.keys() for names in others.values()):
        return False
    try:
        TopologicalSorter(others).prepare()
    except CycleError:
        return False
    return True
