"""Answers reviews of HyperJobs in both API groups: sets the default queue and refuses what cannot be split.

A HyperJob without a queue gets the operator's default queue in each of its jobs. A template must satisfy Volcano's
rules for Jobs; its parts differ from it in size only.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from controller.api.hyperjob_validation import (
    count_parts,
    default_device_limits,
    hyperjob_violations,
    longest_part_name,
)
from controller.api.hyperjobs import HyperJob, HyperJobError, ReplicatedJob, read_hyperjob
from controller.api.keys import BATCH_HYPERJOBS, HYPERJOBS
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
from webhook.validation.job import JobPolicy
from webhook.validation.job_rules import job_violations
from webhook.validation.job_types import MAX_TASKS, read_job
from webhook.validation.pod import MAX_NAME_LENGTH

_RESOURCES = frozenset({HYPERJOBS.plural})
_MAX_VIOLATIONS = 10
_DOCUMENT = msgspec.json.Decoder(dict[str, Any])


def mutate_hyperjob(request: Request, policy: JobPolicy) -> AdmissionResponse:
    """Return the default queue for the jobs that name no queue; an update leaves a job of that queue there."""
    if denial := validate_target(request, _group(request), _RESOURCES, operations=("CREATE", "UPDATE")):
        return denial
    if request.namespace in policy.exempt_namespaces:
        return exempt()
    try:
        hyperjob = _read(request)
        before = _parse(_DOCUMENT.decode(request.old_object)) if request.operation == "UPDATE" else None
    except (ValueError, RecursionError) as error:
        return allowed() if request.operation == "UPDATE" else _decode_failed(request, error)
    queues = {job.name: job.template_spec.queue for job in before.spec.replicated_jobs} if before is not None else {}
    return patched(*_queue_patch(hyperjob, policy, queues))


def validate_hyperjob(request: Request, policy: JobPolicy, queues: QueueCache) -> AdmissionResponse:
    """Return whether the HyperJob can be split, with warnings for its user."""
    if denial := validate_target(request, _group(request), _RESOURCES, operations=("CREATE", "UPDATE")):
        return denial
    if request.namespace in policy.exempt_namespaces:
        return exempt()
    if leaves_unchanged(request, "spec"):
        return allowed()
    try:
        hyperjob = _read(request)
        violations = list(islice(_violations(hyperjob, _max_parts(request, policy)), _MAX_VIOLATIONS))
    except (ValueError, RecursionError) as error:
        return _decode_failed(request, error)
    if violations:
        return denied(_message(request, *violations), code=422)
    return _check_queues(request, hyperjob, policy, queues=queues)


def _read(request: Request) -> HyperJob:
    """Return the HyperJob, or raise `ValueError` if it cannot be decoded or is too large."""
    document = _DOCUMENT.decode(request.object)
    if request.operation == "CREATE" and (violation := _size_violation(document)):
        raise HyperJobError(violation)
    return _parse(document)


def _parse(document: dict[str, Any]) -> HyperJob:
    """Return the HyperJob in *document* without its status, in which a user may have written very many values."""
    return read_hyperjob({**document, "status": None})


def _size_violation(document: dict[str, Any]) -> str | None:
    """Return which name or list is too long for a new HyperJob, checked before the expensive decoding of its models."""
    metadata, spec = _member(document, "metadata"), _member(document, "spec")
    if len(str(metadata.get("name", ""))) > MAX_NAME_LENGTH:
        return f"metadata.name has more than {MAX_NAME_LENGTH} characters: shorten it"
    jobs = _items(spec, "replicatedJobs")
    if len(jobs) > MAX_TASKS:
        return f"spec.replicatedJobs has {len(jobs)} jobs: use at most {MAX_TASKS}"
    templates = [*(_member(job, "templateSpec") for job in jobs), _member(_member(spec, "template"), "spec")]
    tasks = sum(len(_items(template, "tasks")) for template in templates)
    if tasks > MAX_TASKS:
        return f"its templates have {tasks} tasks: use at most {MAX_TASKS} in all, and replicas for equal pods"
    return None


def _member(value: Any, name: str) -> dict[str, Any]:
    member = value.get(name) if isinstance(value, dict) else None
    return member if isinstance(member, dict) else {}


def _items(parent: dict[str, Any], name: str) -> list[Any]:
    items = parent.get(name)
    return items if isinstance(items, list) else []


def _check_queues(request: Request, hyperjob: HyperJob, policy: JobPolicy, *, queues: QueueCache) -> AdmissionResponse:
    """Return a warning, or a denial if so configured, for queues that the tenant may not use or that are not usable."""
    if request.operation != "CREATE":
        return allowed()
    violations = sorted(
        {violation for job in hyperjob.spec.replicated_jobs if (violation := _tenant_violation(request, job, policy))}
    )
    violations = violations[:_MAX_VIOLATIONS]
    if violations and policy.denies_unusable_queues:
        return denied(_message(request, *violations))
    names = {policy.queue_for(job.template_spec.queue) for job in hyperjob.spec.replicated_jobs}
    checked = sorted(names) if queues.is_synced else ()
    may_use = partial(policy.may_use_queue, request.namespace)
    reasons = (reason for name in checked if (reason := queues.why_unusable(name, may_use)))
    unusable = tuple(islice(reasons, _MAX_VIOLATIONS))
    if unusable and policy.denies_unusable_queues:
        return denied(_message(request, *unusable), depends_on_queues=True)
    return allowed(*(f"{reason}; until then the HyperJob waits" for reason in (*violations, *unusable)))


def _tenant_violation(request: Request, job: ReplicatedJob, policy: JobPolicy) -> str | None:
    template = job.template_spec
    pods = (task.template.spec.priority_class_name for task in template.tasks)
    return policy.tenant_violation(
        request.namespace, policy.queue_for(template.queue), {template.priority_class_name, *pods}
    )


def _queue_patch(hyperjob: HyperJob, policy: JobPolicy, before: Mapping[str, str]) -> Iterator[Operation]:
    """Yield the default queue of each job that names none, unless *before* has another one by the name of the job."""
    for index, job in enumerate(hyperjob.spec.replicated_jobs):
        name = job.template_spec.queue
        if (queue := policy.queue_for(name)) != name and before.get(job.name, queue) == queue:
            yield Operation("add", f"{_template_path(hyperjob, index)}/queue", queue)


def _template_path(hyperjob: HyperJob, index: int) -> str:
    if hyperjob.resource is BATCH_HYPERJOBS:
        return "/spec/template/spec"
    return f"/spec/replicatedJobs/{index}/templateSpec"


def _max_parts(request: Request, policy: JobPolicy) -> int:
    """Return how many parts the HyperJob may have: also those that it has, if the maximum became lower."""
    if request.operation != "UPDATE":
        return policy.max_parts
    try:
        before = _parse(_DOCUMENT.decode(request.old_object))
    except (ValueError, RecursionError):
        return policy.max_parts
    return max(policy.max_parts, sum(count_parts(job) or 0 for job in before.spec.replicated_jobs))


def _violations(hyperjob: HyperJob, max_parts: int) -> Iterator[str]:
    yield from hyperjob_violations(hyperjob, max_parts)
    for job in hyperjob.spec.replicated_jobs:
        path = f"replicated job {job.name!r}" if job.name else "the template"
        violations = job_violations(read_job(_to_job(job)), longest_part_name(hyperjob, job))
        yield from (f"{path}: {violation}" for violation in violations)


def _to_job(job: ReplicatedJob) -> msgspec.Raw:
    spec = default_device_limits(job.template_spec).model_dump(by_alias=True, exclude_unset=True, mode="json")
    return msgspec.Raw(msgspec.json.encode({"metadata": {}, "spec": spec}))


def _group(request: Request) -> str:
    """Return the API group of the HyperJob that *request* is about."""
    return BATCH_HYPERJOBS.group if request.resource.group == BATCH_HYPERJOBS.group else HYPERJOBS.group


def _decode_failed(request: Request, error: Exception) -> AdmissionResponse:
    message = str(error) if isinstance(error, HyperJobError) else f"cannot be decoded: {error}"
    return denied(_message(request, message), code=422)


def _message(request: Request, *violations: str) -> str:
    return f"hyperjob {request.namespace}/{request.name}: {'; '.join(violations)}"
