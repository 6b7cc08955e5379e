"""Volcano Jobs: what they ask for, and from whom."""

import sys

import msgspec

from controller.api import jobs as wire
from controller.api.keys import PREFERRED_CLUSTERS
from controller.api.meta import ObjectMeta
from controller.cache.facts import VOLCANO_JOB, Demand, TemplateFacts, TemplateKey
from controller.cache.pool import Pool, fingerprint
from controller.cache.translate.amounts import AmountError, milliseconds, sentence, version
from controller.cache.translate.membership import claim, owner
from controller.cache.translate.pods import pod_template
from controller.engine.clusters import ClusterName
from controller.engine.requests import JobTemplate, Task, pod_requests, total_requests

Counted = Demand | AmountError

_NAMES = msgspec.json.Decoder(list[str])


class JobTranslator:
    """Makes facts of jobs; equal templates share one demand."""

    def __init__(self) -> None:
        self._demands: Pool[Counted] = Pool()

    def facts(self, job: wire.Job) -> TemplateFacts:
        """Return what is kept of *job*."""
        counted = self._counted(job)
        readable = isinstance(counted, Demand) and not job.flaws
        meta, spec = job.metadata, job.spec
        return TemplateFacts(
            uid=sys.intern(meta.uid),
            resource_version=version(meta.resource_version),
            key=TemplateKey(VOLCANO_JOB, sys.intern(meta.namespace), sys.intern(meta.name)),
            generation=meta.generation,
            since=milliseconds(meta.creation_timestamp) or 0,
            queue=sys.intern(spec.queue),
            priority_class=sys.intern(spec.priority_class_name),
            claim=claim(meta),
            preferred=_preferred(meta),
            deleting=meta.deletion_timestamp is not None,
            demand=counted if isinstance(counted, Demand) and readable else None,
            flaw=sentence(job.flaws, str(counted) if isinstance(counted, AmountError) else ""),
        )

    def _counted(self, job: wire.Job) -> Counted:
        spec = job.spec
        return self._demands.get(fingerprint(spec.min_available, spec.tasks), lambda: _count(spec))


def _preferred(meta: ObjectMeta) -> tuple[ClusterName, ...]:
    """Return the clusters a HyperJob prefers for its part; a text that is no list of names prefers none."""
    text = meta.annotations.get(PREFERRED_CLUSTERS)
    if text is None or not owner(meta):
        return ()
    try:
        return tuple(ClusterName(name) for name in _NAMES.decode(text))
    except (msgspec.MsgspecError, RecursionError):
        return ()


def _count(spec: wire.JobSpec) -> Counted:
    try:
        job = _job(spec)
    except AmountError as error:
        return error
    classes = {task.pod.priority_class for task in job.tasks} - {""}
    claims = {claim for task in job.tasks for claim in task.pod.claims}
    return Demand(
        total_requests(job),
        pods=pod_requests(job),
        job=job,
        task_classes=tuple(sorted(classes)),
        claims=tuple(sorted(claims)),
    )


def _job(spec: wire.JobSpec) -> JobTemplate:
    if not spec.tasks:
        raise AmountError("spec.tasks is empty; give the job a task")
    if spec.min_available < 0:
        raise AmountError(f"spec.minAvailable is {spec.min_available}; write zero or more")
    return JobTemplate(
        tuple(_task(task, f"spec.tasks[{place}]") for place, task in enumerate(spec.tasks)),
        min_available=spec.min_available,
    )


def _task(task: wire.TaskSpec, where: str) -> Task:
    if task.replicas < 0:
        raise AmountError(f"{where}.replicas is {task.replicas}; write zero or more")
    policy = task.partition_policy
    return Task(
        task.name,
        task.replicas,
        pod_template(task.template.spec, f"{where}.template.spec"),
        minimum=task.min_available,
        partition_minimum=policy.min_partitions * policy.partition_size if policy else 0,
    )
