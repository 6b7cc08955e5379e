"""Translates Volcano Jobs and templates of configured kinds: requests, queue, priority class and HyperJob."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from controller.api import jobs as wire
from controller.api.jobs import (
    Affinity,
    EstimateError,
    NodeClaim,
    PodSpec,
    Toleration,
    encode_node_claim,
    parse_running_estimate,
)
from controller.api.keys import (
    GROUP_ANNOTATION,
    HYPERJOB_GROUPS,
    HYPERJOB_KIND,
    PREFERRED_CLUSTERS_ANNOTATION,
    QUEUE_NAME_KEYS,
)
from controller.api.meta import ObjectMeta, Quantities
from controller.cache.integrations import FieldPath, Integration
from controller.cache.interning import InternPool, TemplateNames, fingerprint
from controller.cache.objects import (
    BATCH_JOB,
    POD,
    VOLCANO_JOB,
    CachedTemplate,
    GroupKind,
    HyperJobReference,
    StatusReason,
    TemplateKey,
    WorkloadRequests,
    group_kind,
)
from controller.cache.translate.progress import value_at
from controller.cache.translate.units import (
    AmountError,
    join_errors,
    parse_resource_version,
    parse_resources,
    require_few_resources,
    to_milliseconds,
    without_frames,
)
from controller.engine.reasons import Reason
from controller.engine.state.clusters import ClusterName
from controller.engine.state.requests import (
    Container,
    JobTemplate,
    PodTemplate,
    Task,
    pod_request,
    pod_requests,
    total_requests,
    with_few_containers,
)
from controller.engine.state.resources import EMPTY, Resources

RequestsOrError = WorkloadRequests | AmountError

#: A longer claim counts as unreadable: claims are cached for every workload class and sent with every query.
_MAX_CHARACTERS = 16_384
#: Pods with a shorter one end soon after their deletion: no tenant exceeds its quota with them for long.
_LONG_GRACE_PERIOD_SECONDS = 300
#: Length to which names of queues, PriorityClasses and resource claims are cut, because messages and log lines contain
#: them. It is one more than Kubernetes allows, so that a cut name names nothing.
_MAX_NAME_LENGTH = 254
#: Characters of a template's digest; equal by chance for one of 2^64 pairs.
_DIGEST_CHARACTERS = 16
_NAMES = msgspec.json.Decoder(list[str])
#: Reasons that the controller writes into the status of a Volcano Job that no cluster reports.
_PUBLISHED_REASONS = {reason.value: reason.value for reason in (*Reason, *StatusReason)}
#: Fields with the number of pods; the smallest counts, and 1 if none is set.
_REPLICA_FIELDS: Mapping[GroupKind, tuple[str, ...]] = MappingProxyType({BATCH_JOB: ("parallelism", "completions")})
_DEFAULT_REPLICA_FIELDS = ("replicas",)
#: Fields by which a Kubernetes Job and kinds like it, and Kubeflow's jobs, have no pods.
_SUSPEND_FIELDS: tuple[FieldPath, ...] = (("spec", "suspend"), ("spec", "runPolicy", "suspend"))


class _GroupAnnotation(msgspec.Struct):
    uid: str
    split: str = ""


_GROUP_ANNOTATIONS = msgspec.json.Decoder(_GroupAnnotation)


def owner_uid(meta: ObjectMeta) -> str:
    """Return the UID of the HyperJob that controls an object, empty if none does."""
    for reference in meta.owner_references:
        if (
            reference.controller
            and reference.kind == HYPERJOB_KIND
            and reference.api_version.partition("/")[0] in HYPERJOB_GROUPS
        ):
            return reference.uid
    return ""


def hyperjob_reference(meta: ObjectMeta) -> HyperJobReference | None:
    """Return the HyperJob and split that an object names, ``None`` unless that HyperJob controls it."""
    text, uid = meta.annotations.get(GROUP_ANNOTATION), owner_uid(meta)
    if not uid or text is None:
        return None
    try:
        written = _GROUP_ANNOTATIONS.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return HyperJobReference(uid, written.split) if written.uid == uid else None


def node_claim(pod: PodSpec) -> str | None:
    """Return the node claim of *pod*, empty for none; ``None`` where it is unreadable or too long."""
    if pod.node_selector is None and pod.affinity is None and pod.tolerations is None:
        return ""
    try:
        affinity = msgspec.convert(pod.affinity or {}, Affinity).node_affinity
        claim = NodeClaim(
            node_selector=msgspec.convert(pod.node_selector or {}, dict[str, str]),
            node_affinity=affinity.required if affinity is not None else None,
            tolerations=msgspec.convert(pod.tolerations or [], list[Toleration]),
        )
        text = encode_node_claim(claim)
    except (msgspec.ValidationError, RecursionError, UnicodeEncodeError):
        return None
    return sys.intern(text) if len(text) <= _MAX_CHARACTERS else None


def translate_pod_template(pod: wire.PodSpec, where: str) -> PodTemplate:
    """Return the requests of *pod*; *where* is its field path in an `AmountError`."""
    whole = pod.resources or wire.ResourceRequirements()
    template = PodTemplate(
        containers=_containers(pod.containers, f"{where}.containers"),
        init=_containers(pod.init_containers, f"{where}.initContainers"),
        overhead=_parse_resources(pod.overhead, f"{where}.overhead"),
        requests=_parse_resources(whole.requests, f"{where}.resources.requests"),
        limits=_parse_resources(whole.limits, f"{where}.resources.limits"),
        priority_class=_object_name(pod.priority_class_name),
        node_claim=node_claim(pod),
        claims=tuple(_claim_template_name(claim) for claim in pod.resource_claims),
    )
    return with_few_containers(template)


def _object_name(text: str) -> str:
    return sys.intern(text[:_MAX_NAME_LENGTH])


def _claim_template_name(claim: wire.PodResourceClaim) -> str:
    """Return the name of a ResourceClaimTemplate; a shared claim has none, and cannot be mapped."""
    shared = f"ResourceClaim {claim.resource_claim_name or ''}".strip()
    return (claim.resource_claim_template_name or shared)[:_MAX_NAME_LENGTH]


def _containers(containers: tuple[wire.Container, ...] | None, where: str) -> tuple[Container, ...]:
    return tuple(_container(container, f"{where}[{index}]") for index, container in enumerate(containers or ()))


def _container(container: wire.Container, where: str) -> Container:
    asked = container.resources or wire.ResourceRequirements()
    return Container(
        requests=_parse_resources(asked.requests, f"{where}.resources.requests"),
        limits=_parse_resources(asked.limits, f"{where}.resources.limits"),
        restarts=container.restart_policy == "Always",
    )


def _parse_resources(quantities: Quantities | None, where: str) -> Resources:
    return parse_resources(quantities, where) if quantities else EMPTY


class JobTranslator:
    """Translates jobs; equal templates share one value of requests."""

    def __init__(self, names: TemplateNames | None = None) -> None:
        self._names = names or TemplateNames()
        self._interned_requests: InternPool[RequestsOrError] = InternPool()

    def translate(self, job: wire.ObservedJob) -> CachedTemplate:
        """Return the cached form of *job*."""
        counted = self._counted(job)
        readable = isinstance(counted, WorkloadRequests) and not job.decode_errors
        meta, spec = job.metadata, job.spec
        return CachedTemplate(
            uid=self._names.uid(meta.uid),
            resource_version=parse_resource_version(meta.resource_version),
            key=self._names.key(VOLCANO_JOB, meta.namespace, meta.name),
            generation=meta.generation,
            created_at=to_milliseconds(meta.creation_timestamp) or 0,
            queue=_object_name(spec.queue),
            priority_class=_object_name(spec.priority_class_name),
            running_estimate=_running_estimate(spec),
            hyperjob=hyperjob_reference(meta),
            preferred=_preferred_clusters(meta),
            deleting=meta.deletion_timestamp is not None,
            requests=counted if isinstance(counted, WorkloadRequests) and readable else None,
            decode_error=join_errors(job.decode_errors, str(counted) if isinstance(counted, AmountError) else ""),
            has_invalid_requests=isinstance(counted, AmountError),
            published_reason=_published_reason(wire.decode_job_state(job.status)),
        )

    def _counted(self, job: wire.Job) -> RequestsOrError:
        spec = job.spec
        return self._interned_requests.get(fingerprint(spec.min_available, spec.tasks), lambda: _job_requests(spec))


def _published_reason(state: wire.JobState) -> str | None:
    """Return the reason in *state* if the controller wrote it, empty for no status, ``None`` for any other status."""
    if not state.phase and not state.reason:
        return ""
    return _PUBLISHED_REASONS.get(state.reason) if state.phase == "Pending" else None


def _running_estimate(spec: wire.JobSpec) -> int:
    """Return the user's estimate in seconds, 0 for an invalid one, which the webhook refuses."""
    try:
        return parse_running_estimate(spec.running_estimate)
    except EstimateError:
        return 0


def _digest(*parts: object) -> str:
    return fingerprint(*parts).hex()[:_DIGEST_CHARACTERS]


def _images(pod: wire.PodSpec) -> list[str]:
    return [container.image for container in (*(pod.init_containers or ()), *(pod.containers or ()))]


def _preferred_clusters(meta: ObjectMeta) -> tuple[ClusterName, ...]:
    """Return the clusters that a HyperJob prefers for its part; empty if the annotation is invalid."""
    text = meta.annotations.get(PREFERRED_CLUSTERS_ANNOTATION)
    if text is None or not owner_uid(meta):
        return ()
    try:
        return tuple(ClusterName(name) for name in _NAMES.decode(text))
    except (msgspec.MsgspecError, RecursionError):
        return ()


def _job_requests(spec: wire.JobSpec) -> RequestsOrError:
    try:
        job = _job_template(spec)
        requests = require_few_resources(total_requests(job))
    except AmountError as error:
        return without_frames(error)
    classes = {task.pod.priority_class for task in job.tasks} - {""}
    return WorkloadRequests(
        requests,
        pods=pod_requests(job),
        job=job,
        digest=_job_digest(job, [_images(task.template.spec) for task in spec.tasks or ()]),
        task_classes=tuple(sorted(classes)),
        claims=_claims(job),
        has_long_grace_period=any(_has_long_grace_period(task.template.spec) for task in spec.tasks or ()),
    )


def _has_long_grace_period(pod: wire.PodSpec) -> bool:
    seconds = pod.termination_grace_period_seconds
    return isinstance(seconds, int) and seconds > _LONG_GRACE_PERIOD_SECONDS


def _job_digest(job: JobTemplate, images: Iterable[list[str]]) -> str:
    return _digest(
        [
            (task.count, sorted(pod_request(task.pod).items()), of_task)
            for task, of_task in zip(job.tasks, images, strict=True)
        ]
    )


def _claims(job: JobTemplate) -> tuple[str, ...]:
    return tuple(sorted({claim for task in job.tasks for claim in task.pod.claims}))


def _job_template(spec: wire.JobSpec) -> JobTemplate:
    if not spec.tasks:
        raise AmountError("spec.tasks is empty; give the job a task")
    if spec.min_available < 0:
        raise AmountError(f"spec.minAvailable is {spec.min_available}; write zero or more")
    return JobTemplate(
        tuple(_task(task, f"spec.tasks[{index}]") for index, task in enumerate(spec.tasks or ())),
        min_available=spec.min_available,
    )


def _task(task: wire.Task, where: str) -> Task:
    if task.replicas < 0:
        raise AmountError(f"{where}.replicas is {task.replicas}; write zero or more")
    return Task(
        task.name,
        task.replicas,
        translate_pod_template(task.template.spec, f"{where}.template.spec"),
        minimum=task.minimum,
    )


class TemplateTranslator:
    """Translates templates; equal pod templates share one value of requests."""

    def __init__(self) -> None:
        self._interned_requests: InternPool[RequestsOrError] = InternPool()

    def translate(self, template: wire.Template, integration: Integration) -> CachedTemplate:
        """Return the cached form of *template*; lists omit the kind, so it comes from the integration."""
        meta = template.metadata
        document = {"spec": template.spec}
        counted = self._counted(document, integration)
        error = str(counted) if isinstance(counted, AmountError) else ""
        return CachedTemplate(
            uid=sys.intern(meta.uid),
            resource_version=parse_resource_version(meta.resource_version),
            key=TemplateKey(group_kind(integration.api), sys.intern(meta.namespace), sys.intern(meta.name)),
            generation=meta.generation,
            created_at=to_milliseconds(meta.creation_timestamp) or 0,
            queue=_object_name(next(_queue_names(template, document, integration), "")),
            priority_class=_object_name(_string_or_empty(value_at(document, integration.priority_class))),
            deleting=meta.deletion_timestamp is not None,
            requests=counted if isinstance(counted, WorkloadRequests) else None,
            decode_error=join_errors(template.decode_errors, error),
            has_invalid_requests=isinstance(counted, AmountError),
            suspended_by=next((".".join(path) for path in _SUSPEND_FIELDS if value_at(document, path) is True), ""),
        )

    def _counted(self, document: dict[str, Any], integration: Integration) -> RequestsOrError | None:
        """Return the requests of all pods, ``None`` for an object without a pod template."""
        replicated = tuple(_replicated_pods(document, integration))
        return (
            self._interned_requests.get(fingerprint(replicated), lambda: _integration_requests(replicated))
            if replicated
            else None
        )


class _ReplicatedPod(NamedTuple):
    """One pod template of an object, and how many pods have it."""

    where: str
    """Path of the pod's spec."""
    spec: dict[str, Any]
    replicas: int


def _replicated_pods(document: dict[str, Any], integration: Integration) -> Iterator[_ReplicatedPod]:
    """Yield the pod template of an object, and those next to it, such as a Kubeflow job's other types of replica."""
    kind = group_kind(integration.api)
    if kind == POD:
        if isinstance(document["spec"], dict):
            yield _ReplicatedPod("spec", document["spec"], 1)
        return
    if not integration.pod_template:
        # The kind is no longer configured, and its informer about to end.
        return
    *above, _, name = integration.pod_template
    owners = value_at(document, tuple(above))
    for key in sorted(owners) if isinstance(owners, dict) else ():
        spec = value_at(owners, (key, name, "spec"))
        if isinstance(spec, dict):
            counts = [value_at(owners, (key, field)) for field in _REPLICA_FIELDS.get(kind, _DEFAULT_REPLICA_FIELDS)]
            replicas = min((count for count in counts if isinstance(count, int)), default=1)
            yield _ReplicatedPod(".".join((*above, key, name, "spec")), spec, replicas)


def _integration_requests(replicated: Sequence[_ReplicatedPod]) -> RequestsOrError:
    """Return the requests of pods that all start together; only Karmada knows whether it divides their replicas."""
    try:
        pods = [_integration_pod(pod) for pod in replicated]
        job = JobTemplate(tuple(starmap(_integration_task, zip(replicated, pods, strict=True))))
        requests = require_few_resources(total_requests(job))
    except AmountError as error:
        return without_frames(error)
    return WorkloadRequests(
        requests,
        pods=pod_requests(job),
        job=job,
        digest=_job_digest(job, map(_images, pods)),
        task_classes=tuple(sorted({_object_name(pod.priority_class_name) for pod in pods} - {""})),
        claims=_claims(job),
        has_long_grace_period=any(map(_has_long_grace_period, pods)),
    )


def _integration_pod(pod: _ReplicatedPod) -> wire.PodSpec:
    if pod.replicas < 0:
        raise AmountError(f"{pod.where}: replicas is {pod.replicas}; write zero or more")
    try:
        return msgspec.convert(pod.spec, wire.PodSpec)
    except msgspec.ValidationError as error:
        raise AmountError(f"{pod.where}: {error}") from error


def _integration_task(pod: _ReplicatedPod, spec: wire.PodSpec) -> Task:
    # A class would order the tasks of the gang minimum, which is all pods here.
    return Task("", pod.replicas, replace(translate_pod_template(spec, pod.where), priority_class=""))


def _queue_names(template: wire.Template, document: dict[str, Any], integration: Integration) -> Iterator[str]:
    """Yield the queues that it names, by precedence: spec field, annotation, label, pod template."""
    pod = value_at(document, (*integration.pod_template, "metadata"))
    places = (
        template.metadata.annotations,
        template.metadata.labels,
        value_at(pod, ("annotations",)),
        value_at(pod, ("labels",)),
    )
    named = _string_or_empty(value_at(document, integration.queue)) if integration.queue else ""
    names = (named, *(_string_or_empty(value_at(index, (name,))) for index in places for name in QUEUE_NAME_KEYS))
    return (name for name in names if name)


def _string_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""
