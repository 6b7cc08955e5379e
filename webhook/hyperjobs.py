"""The verdict on HyperJobs in both spellings: defaults, and what would keep them from being split; reads nothing else.

An empty queue becomes the operator's default queue, in every job of it. A template is held to Volcano's rules for
Jobs as if it were one: its parts are smaller, and nothing else about them is different.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from controller.api.devices import default_device_limits
from controller.api.hyperjob_validation import hyperjob_violations
from controller.api.hyperjobs import HyperJob, HyperJobError, ReplicatedJob, read_hyperjob
from controller.api.keys import BATCH_HYPERJOBS, HYPERJOBS
from controller.api.review import Operation, Request
from webhook.dns_names import MAX_NAME_LENGTH
from webhook.job_types import MAX_TASKS, read_job
from webhook.job_validation import job_violations
from webhook.jobs import JobPolicy
from webhook.queue_cache import QueueCache
from webhook.request_validation import validate_target
from webhook.response import AdmissionResponse, allowed, denied, exempt, patched

_RESOURCES = frozenset({HYPERJOBS.plural})
_MAX_VIOLATIONS = 10

_DOCUMENT = msgspec.json.Decoder(dict[str, Any])


def mutate_hyperjob(request: Request, policy: JobPolicy) -> AdmissionResponse:
    """Return the queue that is filled in where the HyperJob names none."""
    if refusal := validate_target(request, _group(request), _RESOURCES, operations=("CREATE",)):
        return refusal
    if request.namespace in policy.exempt_namespaces:
        return exempt()
    try:
        hyperjob = _read(request)
    except (ValueError, RecursionError) as error:
        return _decode_failed(request, error)
    return patched(*_queue_patch(hyperjob, policy))


def validate_hyperjob(request: Request, policy: JobPolicy, queues: QueueCache) -> AdmissionResponse:
    """Return whether the HyperJob can be split, and what its user should know."""
    if refusal := validate_target(request, _group(request), _RESOURCES, operations=("CREATE", "UPDATE")):
        return refusal
    if request.namespace in policy.exempt_namespaces:
        return exempt()
    try:
        hyperjob = _read(request)
        found = list(islice(_violations(hyperjob, policy), _MAX_VIOLATIONS))
    except (ValueError, RecursionError) as error:
        return _decode_failed(request, error)
    if found:
        return denied(_message(request, *found), code=422)
    return _check_queues(request, hyperjob, policy, queues=queues)


def _read(request: Request) -> HyperJob:
    """Return the HyperJob, or raise `ValueError` where it cannot be read or is too large to be looked into."""
    document = _DOCUMENT.decode(request.object)
    if request.operation == "CREATE" and (violation := _size_violation(document)):
        raise HyperJobError(violation)
    return read_hyperjob(document)


def _size_violation(document: dict[str, Any]) -> str | None:
    """Return which name or list is longer than a new HyperJob may have; models are slow to make of what is refused."""
    metadata, spec = _member(document, "metadata"), _member(document, "spec")
    if len(str(metadata.get("name", ""))) > MAX_NAME_LENGTH:
        return f"metadata.name has more than {MAX_NAME_LENGTH} characters: shorten it"
    jobs = _items(spec, "replicatedJobs")
    if len(jobs) > MAX_TASKS:
        return f"spec.replicatedJobs has {len(jobs)} jobs: use at most {MAX_TASKS}"
    templates = [*(_member(job, "templateSpec") for job in jobs), _member(_member(spec, "template"), "spec")]
    tasks = sum(len(_items(template, "tasks")) for template in templates)
    if tasks > MAX_TASKS:
        return f"its templates have {tasks} tasks: use at most {MAX_TASKS} in all, with replicas for equal pods"
    return None


def _member(found: Any, name: str) -> dict[str, Any]:
    member = found.get(name) if isinstance(found, dict) else None
    return member if isinstance(member, dict) else {}


def _items(found: dict[str, Any], name: str) -> list[Any]:
    items = found.get(name)
    return items if isinstance(items, list) else []


def _check_queues(request: Request, hyperjob: HyperJob, policy: JobPolicy, *, queues: QueueCache) -> AdmissionResponse:
    """Return a warning, or by configuration a denial, for queues that take no jobs now."""
    if request.operation != "CREATE":
        return allowed()
    violations = sorted(
        {each for job in hyperjob.spec.replicated_jobs if (each := _tenant_violation(request, job, policy))}
    )
    violations = violations[:_MAX_VIOLATIONS]
    if violations and policy.denies_unusable_queues:
        return denied(_message(request, *violations))
    names = {policy.queue_for(job.template_spec.queue) for job in hyperjob.spec.replicated_jobs}
    known = sorted(names) if queues.is_synced else ()
    found = (reason for name in known if (reason := queues.why_unusable(name)))
    unusable = tuple(islice(found, _MAX_VIOLATIONS))
    if unusable and policy.denies_unusable_queues:
        return denied(_message(request, *unusable), depends_on_queues=True)
    return allowed(*(f"{each}; until then the HyperJob waits" for each in (*violations, *unusable)))


def _tenant_violation(request: Request, job: ReplicatedJob, policy: JobPolicy) -> str | None:
    template = job.template_spec
    pods = (task.template.spec.priority_class_name for task in template.tasks)
    return policy.tenant_violation(
        request.namespace, policy.queue_for(template.queue), {template.priority_class_name, *pods}
    )


def _queue_patch(hyperjob: HyperJob, policy: JobPolicy) -> Iterator[Operation]:
    for index, job in enumerate(hyperjob.spec.replicated_jobs):
        named = job.template_spec.queue
        if (queue := policy.queue_for(named)) != named:
            yield Operation("add", f"{_template_path(hyperjob, index)}/queue", queue)


def _template_path(hyperjob: HyperJob, index: int) -> str:
    if hyperjob.resource is BATCH_HYPERJOBS:
        return "/spec/template/spec"
    return f"/spec/replicatedJobs/{index}/templateSpec"


def _violations(hyperjob: HyperJob, policy: JobPolicy) -> Iterator[str]:
    yield from hyperjob_violations(hyperjob, policy.max_parts)
    for job in hyperjob.spec.replicated_jobs:
        where = f"replicated job {job.name!r}" if job.name else "the template"
        yield from (
            f"{where}: {violation}" for violation in job_violations(read_job(_to_job(job)), hyperjob.part_name(job, 0))
        )


def _to_job(job: ReplicatedJob) -> msgspec.Raw:
    spec = default_device_limits(job.template_spec).model_dump(by_alias=True, exclude_unset=True, mode="json")
    return msgspec.Raw(msgspec.json.encode({"metadata": {}, "spec": spec}))


def _group(request: Request) -> str:
    """Return the group of the spelling that *request* may be about."""
    return BATCH_HYPERJOBS.group if request.resource.group == BATCH_HYPERJOBS.group else HYPERJOBS.group


def _decode_failed(request: Request, error: Exception) -> AdmissionResponse:
    sentence = str(error) if isinstance(error, HyperJobError) else f"cannot be read: {error}"
    return denied(_message(request, sentence), code=422)


def _message(request: Request, *violations: str) -> str:
    return f"hyperjob {request.namespace}/{request.name}: {'; '.join(violations)}"
