"""Validates HyperJobs beyond their schema, and applies their defaults.

The webhook validates objects before they are stored, and the controller those that were stored without the webhook.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress

from controller.api.hyperjobs import HyperJob, ReplicatedJob, SplitPolicy, Strategy
from controller.api.quantity import QuantityError, parse_quantity
from controller.api.volcanojobs import JobSpec, TemplateContainer, TemplateTask

_MILLIS_PER_UNIT = 1000

"""Accelerators are counted in thousandths, like everything except bytes."""

_KUBERNETES_DOMAIN = "kubernetes.io/"

MAX_NAME_LENGTH = 63
"""Of a label value and of a DNS label: a HyperJob's name is the former, a part's the latter."""

MAX_PARTS = 1000
"""Of all replicated jobs of a HyperJob together; the configuration may allow fewer."""

MAX_PODS = 100_000
"""Of a template that is divided: its pods are distributed one by one."""

MAX_BYTES = 64 * 2**20
"""Of all Jobs and policies of a HyperJob together, each of which contains its template, annotations or affinity."""

_ENVIRONMENT_BYTES = 512
"""Of the variables that each container of a part gets."""

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


class AcceleratorError(ValueError):
    """A number of accelerators that is not a whole number of pods; the message says what to write."""


def accelerators_per_pod(task: TemplateTask, resource: str) -> int:
    """Return how many *resource* a pod of *task* requests, in thousandths; a missing request is the limit."""
    return sum(
        _parse(resource, container.resources.requests.get(resource, container.resources.limits.get(resource, 0)))
        for container in task.template.spec.containers
    )


def _parse(resource: str, quantity: str | float) -> int:
    try:
        return parse_quantity(resource, quantity)
    except QuantityError as error:
        raise AcceleratorError(str(error)) from error


def scale_to_accelerators(job: JobSpec, resource: str, wanted: int) -> JobSpec:
    """Return *job* scaled so that its pods request *wanted* accelerators in total.

    Tasks that must exist once keep their pods. All divisible tasks that request the accelerator are scaled by one
    factor; minimums are scaled with them.
    """
    totals = tuple(accelerators_per_pod(task, resource) * max(task.replicas, 0) for task in job.tasks)
    singles = sum(total for total, is_single in zip(totals, job.is_single_instance, strict=True) if is_single)
    grows = tuple(total != 0 and not is_single for total, is_single in zip(totals, job.is_single_instance, strict=True))
    had = sum(compress(totals, grows))
    left = wanted * _MILLIS_PER_UNIT - singles
    if not had:
        raise AcceleratorError(_not_requested_message(job, resource))
    growing = tuple(compress(job.tasks, grows))
    if left <= 0 or any(task.replicas * left % (had * task.partition_step) for task in growing):
        unit = "partitions" if any(task.partition_step > 1 for task in growing) else "pods"
        raise AcceleratorError(
            f"{wanted} {resource} are not a whole number of {unit}; "
            f"the template requests {(had + singles) // _MILLIS_PER_UNIT}"
        )
    tasks = tuple(
        _scale_task(task, task.replicas * left // had) if is_growing else task
        for task, is_growing in zip(job.tasks, grows, strict=True)
    )
    grown = job.model_copy(update={"tasks": tasks})
    if job.min_available:
        minimum = job.min_available * grown.total_pods // job.total_pods
        grown = grown.model_copy(update={"min_available": minimum})
    if job.min_success:
        successes = max(job.min_success * grown.total_pods // job.total_pods, 1)
        grown = grown.model_copy(update={"min_success": successes})
    return grown


def _not_requested_message(job: JobSpec, resource: str) -> str:
    """Return that no task requests *resource*, with the qualified names that its tasks use if *resource* has none.

    Upstream's examples write ``ascend910c``, which no pod can request.
    """
    if "/" in resource:
        return f"no task that could be divided asks for {resource}; name it in a task's resources"
    asked = {
        name
        for task in job.tasks
        for container in task.template.spec.containers
        for name in (*container.resources.requests, *container.resources.limits)
        if "/" in name
    }
    same = {name for name in asked if name.rpartition("/")[2].lower() == resource.lower()}
    named = (
        " or ".join(sorted(same or asked)) or f"{_guess_vendor(resource)}/{resource}, in acceleratorType and in a task"
    )
    return f"{resource!r} is not a qualified resource name; write {named}"


def _guess_vendor(resource: str) -> str:
    """Return the vendor domain of an accelerator, guessed from its name."""
    return "huawei.com" if resource.lower().startswith("ascend") else "VENDOR"


def _scale_task(task: TemplateTask, replicas: int) -> TemplateTask:
    if task.min_available is None:
        return task.resized(replicas, None)
    # Volcano wants a minimum of partitions and one of pods to be equal.
    unit = task.partition_step if task.partition_policy and task.partition_policy.min_partitions else 1
    return task.resized(replicas, task.min_available * replicas // (task.replicas * unit) * unit)


def is_device(resource: str) -> bool:
    """Whether Kubernetes treats *resource* as an extended resource, such as nvidia.com/gpu."""
    return "/" in resource and _KUBERNETES_DOMAIN not in resource


def default_device_limits(job: JobSpec) -> JobSpec:
    """Return *job* with a limit for each device that has only a request.

    HyperJobs are often written like that, also in upstream's examples; the API server would reject the pods.
    """
    return (
        job.model_copy(update={"tasks": tuple(_complete_task(task) for task in job.tasks)})
        if _lacks_limits(job)
        else job
    )


def _lacks_limits(job: JobSpec) -> bool:
    return any(_missing_limits(container) for task in job.tasks for container in _containers(task))


def _containers(task: TemplateTask) -> tuple[TemplateContainer, ...]:
    return (*task.template.spec.containers, *task.template.spec.init_containers)


def _missing_limits(container: TemplateContainer) -> dict[str, str | int | float]:
    asked = container.resources
    return {name: value for name, value in asked.requests.items() if is_device(name) and name not in asked.limits}


def _complete_task(task: TemplateTask) -> TemplateTask:
    spec = task.template.spec
    changes = {"containers": tuple(_complete_container(container) for container in spec.containers)}
    if spec.init_containers:
        changes["init_containers"] = tuple(_complete_container(container) for container in spec.init_containers)
    template = task.template.model_copy(update={"spec": spec.model_copy(update=changes)})
    return task.model_copy(update={"template": template})


def _complete_container(container: TemplateContainer) -> TemplateContainer:
    missing = _missing_limits(container)
    if not missing:
        return container
    resources = container.resources.model_copy(update={"limits": {**container.resources.limits, **missing}})
    return container.model_copy(update={"resources": resources})


def hyperjob_violations(hyperjob: HyperJob, max_parts: int = MAX_PARTS) -> tuple[str, ...]:
    """Return what must be changed before *hyperjob* can be split, empty if nothing."""
    excess = hyperjob_size_violation(hyperjob, max_parts)
    return (excess,) if excess else tuple(_violations(hyperjob))


def hyperjob_size_violation(hyperjob: HyperJob, max_parts: int = MAX_PARTS) -> str | None:
    """Return the first size limit that *hyperjob* exceeds, before any part is built; ``None`` if none."""
    counts = [count_parts(job) or 0 for job in hyperjob.spec.replicated_jobs]
    if sum(counts) > max_parts:
        return f"it would have {sum(counts)} parts; ask for {max_parts} at most"
    for job in hyperjob.spec.replicated_jobs:
        where = f"replicated job {job.name!r}" if job.name else "the template"
        pods = _divided_pods(job)
        if pods > MAX_PODS:
            return f"{where}: {pods} pods cannot be divided; ask for {MAX_PODS} at most"
    return parts_size_violation(hyperjob, counts)


def parts_size_violation(hyperjob: HyperJob, counts: Sequence[int]) -> str | None:
    """Return whether the objects of the parts are too large together; *counts* are the numbers of parts of the jobs."""
    if sum(counts) <= 1:
        return None  # it is limited by the size of the HyperJob
    spec = hyperjob.spec
    shared = spec.model_dump_json(include={"cluster_affinity", "cluster_tolerations"})
    annotations = sum(len(f"{name}{value}".encode()) for name, value in hyperjob.part_annotations.items())
    size = sum(counts) * (len(shared.encode()) + annotations)
    for job, count in zip(spec.replicated_jobs, counts, strict=True):
        own = job.model_dump_json(include={"template_spec", "cluster_names"}, exclude_unset=True) if count else ""
        containers = sum(len(_containers(task)) for task in job.template_spec.tasks)
        size += count * (len(own.encode()) + containers * _ENVIRONMENT_BYTES)
    if size <= MAX_BYTES:
        return None
    return (
        f"its {sum(counts)} parts with {size} bytes are too large together, {MAX_BYTES} are allowed; "
        "make its templates, annotations and clusterAffinity smaller"
    )


def _divided_pods(job: ReplicatedJob) -> int:
    """Return how many pods are divided, scaled to the split policy's accelerators."""
    if job.split_policy is None:
        return 0
    try:
        return resize_template(job).pods
    except AcceleratorError:
        return job.template_spec.pods


def _violations(hyperjob: HyperJob) -> Iterator[str]:
    spec = hyperjob.spec
    if not spec.replicated_jobs:
        yield "spec.replicatedJobs is empty; name at least one job"
    for name in _duplicates(job.name for job in spec.replicated_jobs):
        yield f"replicated job {name!r} is repeated; give each job a unique name"
    if spec.min_available is not None and spec.min_available < 1:
        yield f"spec.minAvailable is {spec.min_available}; write one or more, or leave it out for all parts"
    if spec.max_domains is not None and spec.max_domains < 1:
        yield f"spec.maxDomains is {spec.max_domains}; write one or more, or leave it out for no limit"
    for job in spec.replicated_jobs:
        where = f"replicated job {job.name!r}" if job.name else "the template"
        for violation in (*_job_violations(job), *_name_violations(hyperjob, job)):
            yield f"{where}: {violation}"
    counts = [count_parts(job) for job in spec.replicated_jobs]
    known = sum(count for count in counts if count is not None)
    if spec.min_available is not None and None not in counts and spec.min_available > known:
        yield f"spec.minAvailable is {spec.min_available}, but there are {known} parts; ask for {known} at most"


def count_parts(job: ReplicatedJob) -> int | None:
    """Return the number of parts of *job*, ``None`` where it depends on the clusters."""
    policy = job.split_policy
    if policy is None:
        return max(job.replicas, 0)
    match policy.effective_strategy:
        case "ByCluster":
            return sum(1 for share in policy.clusters if share.replicas)
        case "ByReplicas":
            return policy.parts or len(policy.clusters)
        case "Static":
            return count_static_parts(job)
        case _:
            return None


def count_static_parts(job: ReplicatedJob) -> int:
    """Return the number of parts of upstream's static split: its replicas, or one for each named cluster."""
    return job.replicas if job.replicas > 1 else max(len(job.cluster_names), 1)


def resize_template(job: ReplicatedJob) -> JobSpec:
    """Return the template of the parts, scaled to the split policy's accelerators.

    Raises `AcceleratorError`.
    """
    policy, template = job.split_policy, default_device_limits(job.template_spec)
    if policy is None or policy.accelerators is None or not policy.accelerator_type:
        return template
    return scale_to_accelerators(template, policy.accelerator_type, policy.accelerators)


def longest_part_name(hyperjob: HyperJob, job: ReplicatedJob) -> str:
    """Return the name of the last part; where the number of parts depends on the clusters, that of a hundredth."""
    return hyperjob.part_name(job, (count_parts(job) or 100) - 1)


def _name_violations(hyperjob: HyperJob, job: ReplicatedJob) -> Iterator[str]:
    longest = longest_part_name(hyperjob, job)
    if not hyperjob.metadata.name:  # generateName: the name is unknown until the object is stored
        return
    if len(longest) > MAX_NAME_LENGTH:
        yield f"its parts would be named {longest[:80]!r}, {len(longest)} characters; {MAX_NAME_LENGTH} are allowed"
    if not _NAME_CHARACTERS.issuperset(longest) or longest.startswith("-"):
        yield f"its parts would be named {longest[:80]!r}; use lower case letters, digits and '-' in the names"
    elif job.name != job.name.strip("-"):
        yield "its name is a label of its parts; let it begin and end with a letter or a digit"


def _job_violations(job: ReplicatedJob) -> Iterator[str]:
    if job.replicas < 0:
        yield f"replicas is {job.replicas}; write zero or more"
    yield from _template_violations(job.template_spec)
    if job.split_policy is not None:
        yield from _split_violations(job, job.split_policy)


def _template_violations(template: JobSpec) -> Iterator[str]:
    if not template.tasks:
        yield "it has no tasks; give it at least one"
    for task in template.tasks:
        if task.replicas < 0:
            yield f"task {task.name!r} has {task.replicas} replicas; write zero or more"
        elif (task.min_available or 0) > task.replicas:
            yield f"task {task.name!r}: minAvailable {task.min_available} is more than its {task.replicas} replicas"
    if (template.min_available or 0) > template.total_pods:
        yield f"minAvailable {template.min_available} is more than the {template.total_pods} pods of its tasks"
    if "mpi" in template.plugins and template.leader_tasks.isdisjoint(task.name for task in template.tasks):
        yield "the mpi plugin finds no master task; name it with --master=NAME"


def _split_violations(job: ReplicatedJob, policy: SplitPolicy) -> Iterator[str]:
    for name in _duplicates(share.name for share in policy.clusters):
        yield f"splitPolicy.clusters names {name!r} twice; keep one entry"
    if not job.template_spec.pods:
        yield "none of its tasks can be divided; give one of them several replicas, or leave splitPolicy out"
        return
    if policy.accelerators is not None and not policy.accelerator_type:
        yield "splitPolicy.accelerators needs acceleratorType, the resource's name such as nvidia.com/gpu"
    try:
        template = resize_template(job)
    except AcceleratorError as error:
        yield f"splitPolicy.accelerators: {error}"
        return
    yield from _STRATEGY_RULES[policy.effective_strategy](job, policy, template)


def _by_cluster(_: ReplicatedJob, policy: SplitPolicy, template: JobSpec) -> Iterator[str]:
    if not policy.clusters or any(share.replicas is None for share in policy.clusters):
        yield "a split ByCluster needs splitPolicy.clusters, each with its replicas"
        return
    given = sum(share.replicas or 0 for share in policy.clusters)
    if given not in {template.pods, template.total_pods}:
        yield (
            f"splitPolicy.clusters share out {given} replicas, but the tasks that are divided have {template.pods}; "
            "make the sums equal"
        )


def _by_replicas(_: ReplicatedJob, policy: SplitPolicy, template: JobSpec) -> Iterator[str]:
    if not policy.parts and not policy.clusters:
        yield "a split ByReplicas needs splitPolicy.parts, or splitPolicy.clusters with their weights"
    if policy.parts and policy.clusters and policy.parts != len(policy.clusters):
        yield f"splitPolicy.parts is {policy.parts}, but {len(policy.clusters)} clusters are named; leave parts out"
    yield from _require_enough_pods(policy.parts or len(policy.clusters), template)


def _static(job: ReplicatedJob, _: SplitPolicy, template: JobSpec) -> Iterator[str]:
    yield from _require_enough_pods(count_static_parts(job), template)


def _by_capacity(_: ReplicatedJob, policy: SplitPolicy, template: JobSpec) -> Iterator[str]:
    if (policy.min_replicas or 0) > template.pods:
        yield f"splitPolicy.minReplicas is {policy.min_replicas}, but there are only {template.pods} pods to divide"


def _duplicates(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _require_enough_pods(count: int, template: JobSpec) -> Iterator[str]:
    if count > template.pods:
        yield f"{template.pods} pods cannot be divided into {count} parts; ask for fewer parts"


_STRATEGY_RULES: Mapping[Strategy, Callable[[ReplicatedJob, SplitPolicy, JobSpec], Iterator[str]]] = {
    "ByCluster": _by_cluster,
    "ByReplicas": _by_replicas,
    "ByResources": _by_capacity,
    "Static": _static,
    "Auto": _by_capacity,
}
