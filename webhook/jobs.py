"""The verdict on Volcano Jobs: Volcano's defaults and rules, in the control plane; reads and writes nothing.

A job that names no queue goes to the operator's default queue. Volcano's definition of Job writes `default` where a
job names none, before anybody is asked, so that name stands for the operator's default queue too. What is wrong with
a queue that exists or not is a warning, for the job waits until it is right, or by configuration a denial.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice

from controller.api.configuration import Resize, Tenant
from controller.api.hyperjob_validation import MAX_PARTS
from controller.api.review import Operation, Request
from webhook.dns_names import MAX_NAME_LENGTH
from webhook.job_types import MPI, NEED_SERVICE, Job, Spec, read_job
from webhook.job_update_validation import changed_immutable_fields, resize_warning, update_violations
from webhook.job_validation import job_violations
from webhook.queue_cache import QueueCache
from webhook.request_validation import validate_target
from webhook.response import AdmissionResponse, allowed, denied, exempt, patched

GROUP, RESOURCE = "batch.volcano.sh", "jobs"
SCHEDULER = "volcano"
#: What the queue is where the user has named none: empty in an older definition of Job.
UNSPECIFIED_QUEUES = frozenset({"", "default"})
MAX_RETRY = 3
#: A host's own DNS would not know the job's service.
HOST_DNS = "ClusterFirstWithHostNet"

#: More are not read.
_MAX_VIOLATIONS = 10
#: A name is generated after admission, with so many characters.
_GENERATED_SUFFIX = "xxxxx"
_IMMUTABLE = (
    "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and"
    " `PriorityClassName`; delete the job and create it anew to change"
)


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """What the operator has decided about jobs."""

    default_queue: str = "default"
    denies_unusable_queues: bool = False
    resize: Resize = field(default_factory=Resize)
    exempt_namespaces: frozenset[str] = frozenset()
    tenants: tuple[Tenant, ...] = ()
    denies_unmatched_tenants: bool = False
    max_parts: int = MAX_PARTS

    def queue_for(self, named: str) -> str:
        """Return the queue of a job whose own says *named*."""
        return self.default_queue if named in UNSPECIFIED_QUEUES else named

    def tenant_violation(self, namespace: str, queue: str, classes: Iterable[str]) -> str | None:
        """Return why *namespace* may not use this queue or one of these PriorityClasses, or ``None`` (Q7)."""
        entries = [tenant for tenant in self.tenants if matches_any(tenant.namespaces, namespace)]
        allowing = [entry for entry in entries if not entry.queues or matches_any(entry.queues, queue)]
        if not allowing and (entries or self.denies_unmatched_tenants):
            return f"namespace {namespace!r} may not use queue {queue!r}: name another in spec.queue"
        for name in sorted(filter(None, classes)) if entries else ():
            if not any(not entry.priority_classes or matches_any(entry.priority_classes, name) for entry in allowing):
                return f"namespace {namespace!r} may not use PriorityClass {name!r}: name another in priorityClassName"
        return None


def matches_any(patterns: Iterable[str], name: str) -> bool:
    """Say whether one of *patterns* matches *name*."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def mutate_job(request: Request, policy: JobPolicy) -> AdmissionResponse:
    """Return what Volcano would fill in of the job that *request* creates.

    One that is in the default queue and is written again without a queue stays there.
    """
    if refusal := validate_target(request, GROUP, {RESOURCE}, operations=("CREATE", "UPDATE")):
        return refusal
    if request.namespace in policy.exempt_namespaces:
        return exempt()
    try:
        job = read_job(request.object)
        before = read_job(request.old_object) if request.operation == "UPDATE" else None
    except (ValueError, RecursionError) as error:
        return _decode_failed(request, error)
    if before is None:
        return patched(*_default_patch(job.spec, policy))
    stays = policy.queue_for(job.spec.queue) == before.spec.queue
    return patched(*_queue_patch(job.spec, policy)) if stays else allowed()


def validate_job(request: Request, policy: JobPolicy, queues: QueueCache) -> AdmissionResponse:
    """Return whether Volcano would take the job, and what its user should know."""
    if refusal := validate_target(request, GROUP, {RESOURCE}, operations=("CREATE", "UPDATE")):
        return refusal
    if request.namespace in policy.exempt_namespaces:
        return exempt()
    try:
        job = read_job(request.object)
        if request.operation == "CREATE":
            return _validate_create(request, job, policy, queues)
        return _validate_update(request, job, policy)
    except (ValueError, RecursionError) as error:
        return _decode_failed(request, error)


def _validate_create(request: Request, job: Job, policy: JobPolicy, queues: QueueCache) -> AdmissionResponse:
    name = job.metadata.name or request.name or f"{job.metadata.generate_name}{_GENERATED_SUFFIX}"
    # A longer name is wrong by its beginning already, and is part of every message.
    name = name[: MAX_NAME_LENGTH + 1]
    violations = list(islice(job_violations(job, name), _MAX_VIOLATIONS))
    if violations:
        return denied(_message(request, name, *violations), code=422)
    queue = policy.queue_for(job.spec.queue)
    forbidden = policy.tenant_violation(request.namespace, queue, job.spec.priority_classes)
    if forbidden and policy.denies_unusable_queues:
        return denied(_message(request, name, forbidden))
    trouble = queues.why_unusable(queue) if queues.is_synced else None
    if trouble and policy.denies_unusable_queues:
        return denied(_message(request, name, trouble), depends_on_queues=True)
    return allowed(*(f"{each}; until then the job waits" for each in (forbidden, trouble) if each))


def _validate_update(request: Request, job: Job, policy: JobPolicy) -> AdmissionResponse:
    before = read_job(request.old_object)
    violations = list(islice(update_violations(before, job), _MAX_VIOLATIONS))
    if not violations and (
        changed := list(islice(changed_immutable_fields(request.old_object, request.object), _MAX_VIOLATIONS))
    ):
        violations = [f"{_IMMUTABLE} {', '.join(changed)}"]
    if violations:
        return denied(_message(request, request.name, *violations), code=422)
    warning = resize_warning(before, job, policy.resize)
    return allowed(warning) if warning else allowed()


def _default_patch(spec: Spec, policy: JobPolicy) -> list[Operation]:
    """Return what fills in the job; nothing where there are no tasks or too many, for such a job is refused."""
    if not spec.all_tasks or spec.has_too_many_tasks:
        return []
    operations = _queue_patch(spec, policy)
    for name, found, default in (
        ("schedulerName", spec.scheduler_name, SCHEDULER),
        ("maxRetry", spec.max_retry, MAX_RETRY),
        ("minAvailable", spec.min_available, sum(task.effective_min_available for task in spec.all_tasks)),
    ):
        if not found and default != found:
            operations.append(Operation("add", f"/spec/{name}", default))
    for index, task in enumerate(spec.all_tasks):
        path, pod = f"/spec/tasks/{index}", task.template.spec
        if not task.name:
            operations.append(Operation("add", f"{path}/name", f"default{index}"))
        if pod.host_network and not pod.dns_policy:
            operations.append(Operation("add", f"{path}/template/spec/dnsPolicy", HOST_DNS))
        if task.min_available is None:
            operations.append(Operation("add", f"{path}/minAvailable", task.effective_min_available))
        if not task.max_retry:
            operations.append(Operation("add", f"{path}/maxRetry", MAX_RETRY))
    return [*operations, *_plugin_patch(spec)]


def _queue_patch(spec: Spec, policy: JobPolicy) -> list[Operation]:
    queue = policy.queue_for(spec.queue)
    return [Operation("add", "/spec/queue", queue)] if queue != spec.queue else []


def _plugin_patch(spec: Spec) -> list[Operation]:
    given = spec.plugins or {}
    needed = {"svc": any(name in given for name in NEED_SERVICE), "ssh": MPI in given}
    return [
        Operation("add", f"/spec/plugins/{name}", [])
        for name, is_needed in needed.items()
        if is_needed and name not in given
    ]


def _decode_failed(request: Request, error: Exception) -> AdmissionResponse:
    return denied(f"job {request.namespace}/{request.name} cannot be read: {error}", code=422)


def _message(request: Request, name: str, *violations: str) -> str:
    return f"job {request.namespace}/{name}: {'; '.join(violations)}"
