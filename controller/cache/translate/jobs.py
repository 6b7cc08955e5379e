"""Translates Volcano Jobs: their requests and their queue."""

import sys

import msgspec

from controller.api import jobs as wire
from controller.api.keys import PREFERRED_CLUSTERS_ANNOTATION
from controller.api.meta import ObjectMeta
from controller.cache.interning import InternPool, fingerprint
from controller.cache.objects import VOLCANO_JOB, CachedTemplate, TemplateKey, WorkloadRequests
from controller.cache.translate.hyperjob_membership import hyperjob_reference, owner_uid
from controller.cache.translate.pods import translate_pod_template
from controller.cache.translate.units import AmountError, join_errors, parse_resource_version, to_milliseconds
from controller.engine.state.clusters import ClusterName
from controller.engine.state.requests import JobTemplate, Task, pod_requests, total_requests

RequestsOrError = WorkloadRequests | AmountError

_NAMES = msgspec.json.Decoder(list[str])


class JobTranslator:
    """Translates jobs; equal templates share one value of requests."""

    def __init__(self) -> None:
        self._demands: InternPool[RequestsOrError] = InternPool()

    def translate(self, job: wire.Job) -> CachedTemplate:
        """Return the cached form of *job*."""
        counted = self._counted(job)
        readable = isinstance(counted, WorkloadRequests) and not job.decode_errors
        meta, spec = job.metadata, job.spec
        return CachedTemplate(
            uid=sys.intern(meta.uid),
            resource_version=parse_resource_version(meta.resource_version),
            key=TemplateKey(VOLCANO_JOB, sys.intern(meta.namespace), sys.intern(meta.name)),
            generation=meta.generation,
            created_at=to_milliseconds(meta.creation_timestamp) or 0,
            queue=sys.intern(spec.queue),
            priority_class=sys.intern(spec.priority_class_name),
            hyperjob=hyperjob_reference(meta),
            preferred=_preferred_clusters(meta),
            deleting=meta.deletion_timestamp is not None,
            requests=counted if isinstance(counted, WorkloadRequests) and readable else None,
            decode_error=join_errors(job.decode_errors, str(counted) if isinstance(counted, AmountError) else ""),
        )

    def _counted(self, job: wire.Job) -> RequestsOrError:
        spec = job.spec
        return self._demands.get(fingerprint(spec.min_available, spec.tasks), lambda: _count_requests(spec))


def _preferred_clusters(meta: ObjectMeta) -> tuple[ClusterName, ...]:
    """Return the clusters that a HyperJob prefers for its part; empty if the annotation is invalid."""
    text = meta.annotations.get(PREFERRED_CLUSTERS_ANNOTATION)
    if text is None or not owner_uid(meta):
        return ()
    try:
        return tuple(ClusterName(name) for name in _NAMES.decode(text))
    except (msgspec.MsgspecError, RecursionError):
        return ()


def _count_requests(spec: wire.JobSpec) -> RequestsOrError:
    try:
        job = _job_template(spec)
    except AmountError as error:
        return error
    classes = {task.pod.priority_class for task in job.tasks} - {""}
    claims = {claim for task in job.tasks for claim in task.pod.claims}
    return WorkloadRequests(
        total_requests(job),
        pods=pod_requests(job),
        job=job,
        task_classes=tuple(sorted(classes)),
        claims=tuple(sorted(claims)),
    )


def _job_template(spec: wire.JobSpec) -> JobTemplate:
    if not spec.tasks:
        raise AmountError("spec.tasks is empty; give the job a task")
    if spec.min_available < 0:
        raise AmountError(f"spec.minAvailable is {spec.min_available}; write zero or more")
    return JobTemplate(
        tuple(_task(task, f"spec.tasks[{index}]") for index, task in enumerate(spec.tasks)),
        min_available=spec.min_available,
    )


def _task(task: wire.TaskSpec, where: str) -> Task:
    if task.replicas < 0:
        raise AmountError(f"{where}.replicas is {task.replicas}; write zero or more")
    policy = task.partition_policy
    return Task(
        task.name,
        task.replicas,
        translate_pod_template(task.template.spec, f"{where}.template.spec"),
        minimum=task.min_available,
        partition_minimum=policy.min_partitions * policy.partition_size if policy else 0,
    )
