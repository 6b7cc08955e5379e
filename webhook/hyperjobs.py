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
from webhook.jobrules import job_flaws
from webhook.jobs import JobPolicy
from webhook.jobspec import MAX_TASKS, read_job
from webhook.names import LONGEST_NAME
from webhook.queuebook import QueueBook
from webhook.routing import misrouted
from webhook.verdict import Verdict, allowed, denied, exempt, patched

_RESOURCES = frozenset({HYPERJOBS.plural})
_MOST_FLAWS = 10

_DOCUMENT = msgspec.json.Decoder(dict[str, Any])


def mutate_hyperjob(request: Request, policy: JobPolicy) -> Verdict:
    """Return the queue that is filled in where the HyperJob names none."""
    if refusal := misrouted(request, _group(request), _RESOURCES, operations=("CREATE",)):
        return refusal
    if request.namespace in policy.exempt_namespaces:
        return exempt()
    try:
        hyperjob = _read(request)
    except (ValueError, RecursionError) as error:
        return _unreadable(request, error)
    return patched(*_queues(hyperjob, policy))


def validate_hyperjob(request: Request, policy: JobPolicy, queues: QueueBook) -> Verdict:
    """Return whether the HyperJob can be split, and what its user should know."""
    if refusal := misrouted(request, _group(request), _RESOURCES, operations=("CREATE", "UPDATE")):
        return refusal
    if request.namespace in policy.exempt_namespaces:
        return exempt()
    try:
        hyperjob = _read(request)
        found = list(islice(_flaws(hyperjob, policy), _MOST_FLAWS))
    except (ValueError, RecursionError) as error:
        return _unreadable(request, error)
    if found:
        return denied(_about(request, *found), code=422)
    return _of_queues(request, hyperjob, policy, queues=queues)


def _read(request: Request) -> HyperJob:
    """Return the HyperJob, or raise `ValueError` where it cannot be read or is too large to be looked into."""
    document = _DOCUMENT.decode(request.object)
    if request.operation == "CREATE" and (flaw := _excess(document)):
        raise HyperJobError(flaw)
    return read_hyperjob(document)


def _excess(document: dict[str, Any]) -> str | None:
    """Return which name or list is longer than a new HyperJob may have; models are slow to make of what is refused."""
    metadata, spec = _member(document, "metadata"), _member(document, "spec")
    if len(str(metadata.get("name", ""))) > LONGEST_NAME:
        return f"metadata.name has more than {LONGEST_NAME} characters: shorten it"
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


def _of_queues(request: Request, hyperjob: HyperJob, policy: JobPolicy, *, queues: QueueBook) -> Verdict:
    """Return a warning, or by configuration a denial, for queues that take no jobs now."""
    if request.operation != "CREATE":
        return allowed()
    forbidden = sorted({each for job in hyperjob.spec.replicated_jobs if (each := _forbidden(request, job, policy))})
    forbidden = forbidden[:_MOST_FLAWS]
    if forbidden and policy.denies_bad_queues:
        return denied(_about(request, *forbidden))
    names = {policy.queue_for(job.template_spec.queue) for job in hyperjob.spec.replicated_jobs}
    known = sorted(names) if queues.is_known else ()
    found = (trouble for name in known if (trouble := queues.trouble(name)))
    troubles = tuple(islice(found, _MOST_FLAWS))
    if troubles and policy.denies_bad_queues:
        return denied(_about(request, *troubles), rests_on_queues=True)
    return allowed(*(f"{each}; until then the HyperJob waits" for each in (*forbidden, *troubles)))


def _forbidden(request: Request, job: ReplicatedJob, policy: JobPolicy) -> str | None:
    template = job.template_spec
    pods = (task.template.spec.priority_class_name for task in template.tasks)
    return policy.forbidden(request.namespace, policy.queue_for(template.queue), {template.priority_class_name, *pods})


def _queues(hyperjob: HyperJob, policy: JobPolicy) -> Iterator[Operation]:
    for place, job in enumerate(hyperjob.spec.replicated_jobs):
        named = job.template_spec.queue
        if (queue := policy.queue_for(named)) != named:
            yield Operation("add", f"{_path(hyperjob, place)}/queue", queue)


def _path(hyperjob: HyperJob, place: int) -> str:
    if hyperjob.resource is BATCH_HYPERJOBS:
        return "/spec/template/spec"
    return f"/spec/replicatedJobs/{place}/templateSpec"


def _flaws(hyperjob: HyperJob, policy: JobPolicy) -> Iterator[str]:
    yield from hyperjob_violations(hyperjob, policy.max_parts)
    for job in hyperjob.spec.replicated_jobs:
        where = f"replicated job {job.name!r}" if job.name else "the template"
        yield from (f"{where}: {flaw}" for flaw in job_flaws(read_job(_as_job(job)), hyperjob.part_name(job, 0)))


def _as_job(job: ReplicatedJob) -> msgspec.Raw:
    spec = default_device_limits(job.template_spec).model_dump(by_alias=True, exclude_unset=True, mode="json")
    return msgspec.Raw(msgspec.json.encode({"metadata": {}, "spec": spec}))


def _group(request: Request) -> str:
    """Return the group of the spelling that *request* may be about."""
    return BATCH_HYPERJOBS.group if request.resource.group == BATCH_HYPERJOBS.group else HYPERJOBS.group


def _unreadable(request: Request, error: Exception) -> Verdict:
    sentence = str(error) if isinstance(error, HyperJobError) else f"cannot be read: {error}"
    return denied(_about(request, sentence), code=422)


def _about(request: Request, *flaws: str) -> str:
    return f"hyperjob {request.namespace}/{request.name}: {'; '.join(flaws)}"
