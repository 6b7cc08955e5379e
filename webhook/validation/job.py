"""Answers reviews of Volcano Jobs by Volcano's defaults and rules, in the Karmada control plane.

A job without a queue goes to the operator's default queue. Volcano's CRD sets `default` as the default of the field,
before any webhook is called, so `default` stands for the operator's default queue too. An unusable queue causes a
warning, since the job waits until the queue is usable, or a denial if so configured.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from controller.api.configuration import Resize, Tenant
from controller.api.hyperjob_validation import MAX_PARTS
from controller.api.jobs import default_task_name
from controller.api.keys import JOBS
from webhook.queue_cache import QueueCache
from webhook.review import (
    AdmissionResponse,
    Operation,
    Request,
    allowed,
    denied,
    exempt,
    leaves_unchanged,
    patched,
    validate_target,
)
from webhook.validation.job_rules import (
    changed_immutable_fields,
    job_violations,
    mpi_warning,
    resize_warning,
    update_violations,
)
from webhook.validation.job_types import MPI, NEED_SERVICE, ReviewedJob, ReviewedJobSpec, read_job
from webhook.validation.pod import MAX_NAME_LENGTH

SCHEDULER = "volcano"
#: Values of `spec.queue` where the user named no queue; older versions of the CRD leave it empty.
UNSPECIFIED_QUEUES = frozenset({"", "default"})
MAX_RETRY = 3
#: The DNS of a host does not resolve the service of the job.
HOST_DNS = "ClusterFirstWithHostNet"

#: Maximum number of violations in a message.
_MAX_VIOLATIONS = 10
#: Stands for the suffix of a generated name, which the API server adds after admission.
_GENERATED_SUFFIX = "xxxxx"
_DOCUMENT = msgspec.json.Decoder(dict[str, Any])
_IMMUTABLE = (
    "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and"
    " `PriorityClassName`; delete the job and create it again to change"
)


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """Operator settings for jobs."""

    default_queue: str = "default"
    denies_unusable_queues: bool = False
    resize: Resize = field(default_factory=Resize)
    exempt_namespaces: frozenset[str] = frozenset()
    tenants: tuple[Tenant, ...] = ()
    denies_unmatched_tenants: bool = False
    max_parts: int = MAX_PARTS

    def queue_for(self, name: str) -> str:
        """Return the queue of a job whose `spec.queue` is *name*."""
        return self.default_queue if name in UNSPECIFIED_QUEUES else name

    def may_use_queue(self, namespace: str, queue: str) -> bool:
        """Return whether *namespace* may use this queue (Q7)."""
        return self.tenant_violation(namespace, queue, ()) is None

    def tenant_violation(self, namespace: str, queue: str, classes: Iterable[str]) -> str | None:
        """Return why *namespace* may not use this queue or one of these PriorityClasses, or ``None`` (Q7)."""
        entries = [tenant for tenant in self.tenants if matches_any(tenant.namespaces, namespace)]
        allowing = [entry for entry in entries if not entry.queues or matches_any(entry.queues, queue)]
        if not allowing and (entries or self.denies_unmatched_tenants):
            return f"namespace {namespace!r} may not use queue {queue!r}: use another in spec.queue"
        for name in sorted(filter(None, classes)) if entries else ():
            if not any(not entry.priority_classes or matches_any(entry.priority_classes, name) for entry in allowing):
                return f"namespace {namespace!r} may not use PriorityClass {name!r}: use another in priorityClassName"
        return None


def matches_any(patterns: Iterable[str], name: str) -> bool:
    """Return whether one of *patterns* matches *name*."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def mutate_job(request: Request, policy: JobPolicy) -> AdmissionResponse:
    """Return the defaults that Volcano would set on the job.

    An update that leaves out a default which the job has keeps it: a manifest that is applied again has none of them.
    A minimum that it leaves out becomes the default for the new number of pods: without one, no pod would be needed.
    """
    if denial := validate_target(request, JOBS.group, {JOBS.plural}, operations=("CREATE", "UPDATE")):
        return denial
    if request.namespace in policy.exempt_namespaces:
        return exempt()
    try:
        job = read_job(request.object)
        before = _DOCUMENT.decode(request.old_object) if request.operation == "UPDATE" else None
    except (ValueError, RecursionError) as error:
        return allowed() if leaves_unchanged(request, "spec") else _decode_failed(request, error)
    defaults = _default_patch(job.spec, policy)
    if before is None:
        return patched(*defaults)
    return patched(*(default for default in defaults if _is_set_again(default, _value_at(before, default.path))))


def validate_job(request: Request, policy: JobPolicy, queues: QueueCache) -> AdmissionResponse:
    """Return whether Volcano would accept the job, with warnings for its user."""
    if denial := validate_target(request, JOBS.group, {JOBS.plural}, operations=("CREATE", "UPDATE")):
        return denial
    if request.namespace in policy.exempt_namespaces:
        return exempt()
    if leaves_unchanged(request, "spec"):
        return allowed()
    try:
        job = read_job(request.object)
        if request.operation == "CREATE":
            return _validate_create(request, job, policy, queues)
        return _validate_update(request, job, policy)
    except (ValueError, RecursionError) as error:
        return _decode_failed(request, error)


def _validate_create(request: Request, job: ReviewedJob, policy: JobPolicy, queues: QueueCache) -> AdmissionResponse:
    name = job.metadata.name or request.name or f"{job.metadata.generate_name}{_GENERATED_SUFFIX}"
    # A longer name is invalid anyway, and every message contains it.
    name = name[: MAX_NAME_LENGTH + 1]
    violations = list(islice(job_violations(job, name), _MAX_VIOLATIONS))
    if violations:
        return denied(_message(request, name, *violations), code=422)
    queue = policy.queue_for(job.spec.queue)
    tenant_violation = policy.tenant_violation(request.namespace, queue, job.spec.priority_classes)
    if tenant_violation and policy.denies_unusable_queues:
        return denied(_message(request, name, tenant_violation))
    may_use = partial(policy.may_use_queue, request.namespace)
    unusable = queues.why_unusable(queue, may_use) if queues.is_synced else None
    if unusable and policy.denies_unusable_queues:
        return denied(_message(request, name, unusable), depends_on_queues=True)
    waits = [f"{reason}; until then the job waits" for reason in (tenant_violation, unusable) if reason]
    return allowed(*waits, *filter(None, [mpi_warning(job.spec)]))


def _validate_update(request: Request, job: ReviewedJob, policy: JobPolicy) -> AdmissionResponse:
    old = read_job(request.old_object)
    violations = list(islice(update_violations(old, job), _MAX_VIOLATIONS))
    if not violations and (
        changed := list(islice(changed_immutable_fields(request.old_object, request.object), _MAX_VIOLATIONS))
    ):
        violations = [f"{_IMMUTABLE} {', '.join(changed)}"]
    if violations:
        return denied(_message(request, request.name, *violations), code=422)
    warning = resize_warning(old, job, policy.resize)
    return allowed(warning) if warning else allowed()


def _is_set_again(default: Operation, before: Any) -> bool:
    """Return whether a default that an update leaves out is set again; *before* is the former value of the field."""
    return bool(before == default.value) or (default.path.endswith("/minAvailable") and before is not None)


def _value_at(document: Any, path: str) -> Any:
    """Return the value at a JSON pointer, ``None`` if there is none."""
    for name in path.split("/")[1:]:
        if isinstance(document, list):
            document = document[int(name)] if int(name) < len(document) else None
        else:
            document = document.get(name) if isinstance(document, dict) else None
    return document


def _default_patch(spec: ReviewedJobSpec, policy: JobPolicy) -> list[Operation]:
    """Return the operations that set the defaults; for a job without tasks or with too many, only of the queue."""
    operations = _queue_patch(spec, policy)
    if not spec.all_tasks or spec.has_too_many_tasks:
        return operations
    for name, value, default in (
        ("schedulerName", spec.scheduler_name, SCHEDULER),
        ("maxRetry", spec.max_retry, MAX_RETRY),
        ("minAvailable", spec.min_available, sum(task.effective_min_available for task in spec.all_tasks)),
    ):
        if not value and default != value:
            operations.append(Operation("add", f"/spec/{name}", default))
    for index, task in enumerate(spec.all_tasks):
        path, pod = f"/spec/tasks/{index}", task.template.spec
        if not task.name:
            operations.append(Operation("add", f"{path}/name", default_task_name(index)))
        if pod.host_network and not pod.dns_policy:
            operations.append(Operation("add", f"{path}/template/spec/dnsPolicy", HOST_DNS))
        if task.min_available is None:
            operations.append(Operation("add", f"{path}/minAvailable", task.effective_min_available))
        if not task.max_retry:
            operations.append(Operation("add", f"{path}/maxRetry", MAX_RETRY))
    return [*operations, *_plugin_patch(spec)]


def _queue_patch(spec: ReviewedJobSpec, policy: JobPolicy) -> list[Operation]:
    queue = policy.queue_for(spec.queue)
    return [Operation("add", "/spec/queue", queue)] if queue != spec.queue else []


def _plugin_patch(spec: ReviewedJobSpec) -> list[Operation]:
    plugins = spec.plugins or {}
    required = {"svc": any(name in plugins for name in NEED_SERVICE), "ssh": MPI in plugins}
    return [
        Operation("add", f"/spec/plugins/{name}", [])
        for name, is_required in required.items()
        if is_required and name not in plugins
    ]


def _decode_failed(request: Request, error: Exception) -> AdmissionResponse:
    return denied(f"job {request.namespace}/{request.name} cannot be decoded: {error}", code=422)


def _message(request: Request, name: str, *violations: str) -> str:
    return f"job {request.namespace}/{name}: {'; '.join(violations)}"
