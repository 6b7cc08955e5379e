"""Models of the HyperJob in both of its API groups, and the single form that the rest of the project uses.

`training.volcano.sh` is upstream's API with additional optional fields. A HyperJob of `batch.volcano.sh`, the group in
Volcano's documentation, is read as a HyperJob of one replicated job without a name. The CRDs are generated from these
models.
"""

import hashlib
import json
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from controller.api.keys import (
    BATCH_HYPERJOBS,
    GROUP_ANNOTATION,
    HYPERJOBS,
    PART_ANNOTATION,
    PREFERRED_CLUSTERS_ANNOTATION,
    Resource,
)
from controller.api.volcanojobs import JobSpec
from controller.api.yaml_errors import describe_value_error

Phase = Literal["Pending", "Admitted", "Running", "Completed", "Failed", "Suspended"]

PartPhase = Literal["Pending", "Admitted", "Running", "Completed", "Failed"]

FINISHED: frozenset[Phase] = frozenset({"Completed", "Failed"})

Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]

Time = Annotated[datetime, Field(json_schema_extra={"format": "date-time"})]

Strategy = Literal["ByCluster", "ByReplicas", "ByResources", "Static", "Auto"]
HYPERJOB_RESOURCES: tuple[Resource, ...] = (HYPERJOBS, BATCH_HYPERJOBS)
#: Parts of the names of annotations that parts do not inherit.
_EXCLUDED_ANNOTATIONS = (
    "kubectl.kubernetes.io/",
    "karmada.io/",
    # Only the controller writes these to parts.
    GROUP_ANNOTATION,
    PREFERRED_CLUSTERS_ANNOTATION,
    PART_ANNOTATION,
)
#: Maximum depth of an object, far above that of pod templates: whether it can be read must not depend on the caller.
_MAX_DEPTH = 100
#: Maximum number of errors in a message.
_MAX_ERRORS = 10
#: Maximum number of values in a spec: a model, or an error in one, takes some kilobytes for three bytes of JSON.
_MAX_VALUES = 20_000
_OPTION_RULES = (
    ("!has(self.minAvailable) || self.minAvailable >= 1", "minAvailable is one or more; leave it out for all parts"),
    ("!has(self.maxDomains) || self.maxDomains >= 1", "maxDomains is one or more; leave it out for no limit"),
)


class _StatusModel(BaseModel):
    model_config = ConfigDict(
        extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )


class Condition(_StatusModel):
    """A Kubernetes condition."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = Field(max_length=32768)
    last_transition_time: Time
    observed_generation: Int64 | None = None


class JobState(_StatusModel):
    """The state of one Volcano Job, as Volcano reports it."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: Time | None = None


class ReplicatedJobStatus(_StatusModel):
    """The status of one replicated job; the numbers count pods."""

    name: str
    job_states: dict[str, JobState] | None = None
    pending: int | None = None
    running: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    terminating: int | None = None
    unknown: int | None = None


class PartStatus(_StatusModel):
    """One part: its cluster, its size and its phase."""

    name: str
    """The name of its Volcano Job and of its PropagationPolicy."""
    replicated_job: str = ""
    index: int
    cluster: str = ""
    """The cluster that it is pinned to; empty where any cluster is allowed."""
    pods: tuple[int, ...] = ()
    """The number of pods of each task of the template in this part."""
    rank_offset: int = 0
    """The number of pods in the parts before this one."""
    world_size: int = 0
    """The number of pods in all parts."""
    world_parts: int = 0
    """The number of parts. This and the two fields above have the values passed to the part's pods."""
    phase: PartPhase
    completed_by: str = ""
    """The part whose task has completed the job, where this part was stopped for that; its Job is deleted."""
    running_on: str = ""
    """The cluster it was admitted to."""
    attempt: int = 0
    """The number of Volcano Jobs that were created under this name before the current one."""
    retries: int = 0
    failed_on: tuple[str, ...] = ()
    """The clusters where it failed before."""
    reason: str = ""
    """Why this cluster was chosen."""


class SplitStatus(_StatusModel):
    """The split from which the parts were created; it stays while a part has started and the spec is unchanged."""

    specification: str = ""
    """The hash of the spec that was split, to detect changes."""
    fits: bool = False
    """Whether it fitted into the clusters when it was computed."""
    restarts: int = 0
    """How often all parts were rolled back and started again."""
    parts: tuple[PartStatus, ...] = ()


class HyperJobStatus(_StatusModel):
    """The combined status of all parts."""

    conditions: tuple[Condition, ...] = Field(
        (), json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    )
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = Field(
        (), json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    split_count: int | None = None
    """The number of Volcano Jobs."""
    observed_generation: Int64 | None = None
    phase: Phase | None = None
    reason: str = ""
    """Why it is pending, as a stable code; empty in other phases."""
    message: str = ""
    """Why it is in that phase, and what would change it."""
    queue: str = ""
    """The queues that its Jobs name."""
    parts_running: str = ""
    """The number of running parts, of all parts: 1/2; empty once it is finished."""
    clusters: str = ""
    """The clusters of its parts."""
    finished_at: Time | None = None
    split: SplitStatus | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the phase is final."""
        return self.phase in FINISHED


class HyperJobError(ValueError):
    """An invalid HyperJob; the message names the fields and what is wrong with them."""


def validation_rules(*rules: tuple[str, str]) -> ConfigDict:
    """Return a model configuration with CEL *rules* that the API server checks, each with its message."""
    return ConfigDict(
        json_schema_extra={"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules]}
    )


#: Schema of a list whose items are identified by their names.
_LIST_BY_NAME: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


class HyperJobModel(BaseModel):
    """A part of a HyperJob's spec; unknown fields are dropped, as the API server does."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )


class ClusterShare(HyperJobModel):
    """The share of one cluster in a split job."""

    name: str
    replicas: int | None = Field(None, ge=0)
    """ByCluster: the number of pods of the divided tasks."""
    weight: int | None = Field(None, ge=1)
    """ByReplicas: the weight of this cluster; 1 if unset."""


class SplitPolicy(HyperJobModel):
    """How one job is divided into several."""

    model_config = validation_rules(
        ("!has(self.accelerators) || has(self.acceleratorType)", "accelerators needs acceleratorType"),
        (
            "!has(self.strategy) || self.strategy != 'ByCluster' || has(self.clusters)",
            "a split ByCluster needs clusters, each with its replicas",
        ),
    )

    mode: Literal["static", "auto"] | None = None
    """Upstream's choice: equal parts, or parts sized by the capacity of the clusters."""
    accelerators: int | None = Field(None, ge=1)
    """The number of accelerators of all parts together; unset: as many as the template requests."""
    accelerator_type: str | None = None
    """The resource name of the accelerators, such as nvidia.com/gpu."""
    strategy: Strategy | None = Field(None, json_schema_extra={"maxLength": 16})
    """ByCluster, ByReplicas, ByResources, Static or Auto; takes precedence over mode."""
    clusters: tuple[ClusterShare, ...] = Field((), max_length=500, json_schema_extra=_LIST_BY_NAME)
    """ByCluster and ByReplicas: the clusters that get a part; ByResources: the order in which clusters are filled."""
    parts: int | None = Field(None, ge=1, json_schema_extra={"maximum": 1000})
    """ByReplicas: the number of equal parts."""
    min_replicas: int | None = Field(None, ge=1)
    """ByResources and Auto: the minimum number of pods of a part."""

    @property
    def effective_strategy(self) -> Strategy:
        """The effective strategy; by default ByCluster where clusters are named and Auto otherwise."""
        if self.strategy:
            return self.strategy
        if self.mode:
            return "Static" if self.mode == "static" else "Auto"
        return "ByCluster" if self.clusters else "Auto"


class FailurePolicy(HyperJobModel):
    """What happens when a part fails."""

    max_retries: int = Field(0, ge=0)
    """How often each part is started again."""
    retry_on: Literal["SameCluster", "AnyCluster"] = "SameCluster"
    """Where it is started again: AnyCluster excludes clusters where it failed, unless the split policy names its
    cluster.
    """
    below_minimum: Literal["Rollback", "Keep"] = "Rollback"
    """When fewer parts than minAvailable can succeed: stop all of them, or let the others finish."""
    max_restarts: int = Field(0, ge=0)
    """How often a HyperJob that was rolled back starts again from the beginning."""


class HyperJobOptions(HyperJobModel):
    """Optional fields that both API groups have in common."""

    model_config = validation_rules(*_OPTION_RULES)

    min_available: int | None = None
    """How many parts must be admitted together and must not fail; unset: all of them."""
    max_domains: int | None = None
    """The maximum number of clusters of an automatic split."""
    suspend: bool = False
    """Stops all parts and keeps the HyperJob; set it to false to start again."""
    ttl_seconds_after_finished: int | None = Field(None, ge=0)
    """The number of seconds after which a finished HyperJob is deleted, with all its parts."""
    failure_policy: FailurePolicy = FailurePolicy()
    cleanup_policy: Literal["None", "All"] = "None"
    """Which finished parts are deleted once the HyperJob has finished; running parts are always deleted."""
    cluster_affinity: dict[str, Any] | None = None
    """The clusters that may run parts, as in a PropagationPolicy's placement."""
    cluster_tolerations: tuple[dict[str, Any], ...] = ()
    """The tolerations of cluster taints, as in a PropagationPolicy's placement."""


class ReplicatedJob(HyperJobModel):
    """A Volcano Job, and how it is replicated or split."""

    name: str
    """Its name, which is part of the names and of the labels of its parts."""
    template_spec: JobSpec
    """The spec of the Volcano Job that is copied or split."""
    split_policy: SplitPolicy | None = None
    """Unset: it is not split; it runs in as many copies as replicas says."""
    replicas: int = Field(1, json_schema_extra={"x-default": 1, "maximum": 1000})
    """The number of copies; with a static split, the number of parts."""
    cluster_names: tuple[str, ...] = ()
    """The preferred clusters, in this order."""


class HyperJobSpec(HyperJobOptions):
    """Upstream's spec with the additional options; the only form that the controller uses."""

    model_config = validation_rules(
        *_OPTION_RULES,
        (
            "!has(self.replicatedJobs) || self.replicatedJobs.map(j, has(j.replicas) ? j.replicas : 1).sum() <= 1000",
            "all replicated jobs together have at most 1000 replicas",
        ),
    )

    replicated_jobs: tuple[ReplicatedJob, ...] = Field((), json_schema_extra={**_LIST_BY_NAME, "maxItems": 1000})
    """The jobs whose parts are admitted together; without a split policy, a part for each of the replicas."""
    plugins: dict[str, list[str]] = Field(default_factory=dict)
    """Volcano plugins of every part, unless its template names them."""

    def with_complete_templates(self) -> Self:
        """Return the spec with its plugins moved to the templates, and with Volcano's default names of tasks.

        So they count in the split and in its validation. A part may lack a task, which must not rename the others.
        """
        jobs = tuple(
            job.model_copy(update={"template_spec": job.template_spec.completed(self.plugins)})
            for job in self.replicated_jobs
        )
        return self.model_copy(update={"replicated_jobs": jobs, "plugins": {}})


class JobTemplate(HyperJobModel):
    """The logical job in the documentation's API group."""

    api_version: Literal["batch.volcano.sh/v1alpha1"] = "batch.volcano.sh/v1alpha1"
    kind: Literal["Job"] = "Job"
    spec: JobSpec


class BatchHyperJobSpec(HyperJobOptions):
    """The documentation's spec with the additional options."""

    template: JobTemplate
    split_policy: SplitPolicy | None = None

    def as_spec(self) -> HyperJobSpec:
        """Return it as a HyperJob of one replicated job without a name."""
        job = ReplicatedJob(name="", template_spec=self.template.spec, split_policy=self.split_policy)
        options = {name: getattr(self, name) for name in HyperJobOptions.model_fields}
        return HyperJobSpec(replicated_jobs=(job,), **options)


class Metadata(HyperJobModel):
    """Metadata of a HyperJob."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    annotations: dict[str, str] = Field(default_factory=dict)


class HyperJob(HyperJobModel):
    """A HyperJob in the common form; *resource* is its API group and version."""

    resource: Resource
    metadata: Metadata
    spec: HyperJobSpec
    status: HyperJobStatus = HyperJobStatus()

    @property
    def part_annotations(self) -> dict[str, str]:
        """The annotations that its parts inherit."""
        return {
            key: value
            for key, value in self.metadata.annotations.items()
            if not any(other in key for other in _EXCLUDED_ANNOTATIONS)
        }

    @cached_property
    def split_fingerprint(self) -> str:
        """A hash of the spec fields that determine the split."""
        asked = {"replicated_jobs", "max_domains", "cluster_affinity", "cluster_tolerations"}
        # Without defaults: a field added by a later version must not look like a change.
        return manifest_hash(self.spec.model_dump(mode="json", include=asked, exclude_defaults=True))

    def part_name(self, job: ReplicatedJob, index: int) -> str:
        """Return the name of a part: `{hyperjob}-{replicatedjob}-{index}`, without empty names."""
        return "-".join(filter(None, (self.metadata.name, job.name, str(index))))


def manifest_hash(manifest: object) -> str:
    """Return a short hash of *manifest*."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:16]


def hyperjob_resource(api_version: str) -> Resource:
    """Return the HyperJob resource of *api_version*."""
    for resource in HYPERJOB_RESOURCES:
        if resource.api_version == api_version:
            return resource
    raise HyperJobError(f"apiVersion {api_version!r} has no HyperJob; write {HYPERJOBS.api_version}")


def read_hyperjob(document: dict[str, Any]) -> HyperJob:
    """Parse a HyperJob; raise `HyperJobError` if it is invalid or too large. A null is an unset field."""
    if _has_too_many_values(document.get("spec")):
        raise HyperJobError(f"its spec has more than {_MAX_VALUES} values; make its templates smaller")
    document = _without_nulls(document)
    resource = hyperjob_resource(str(document.get("apiVersion", "")))
    try:
        return HyperJob(
            resource=resource,
            metadata=Metadata.model_validate(document.get("metadata") or {}),
            spec=_spec(resource, document.get("spec")),
            status=read_status(document),
        )
    except ValidationError as error:
        raise HyperJobError(_format_errors("spec", error)) from error


def read_status(document: dict[str, Any]) -> HyperJobStatus:
    """Parse the status in *document*; raise `HyperJobError` if it is invalid. The spec may be unreadable."""
    try:
        return HyperJobStatus.model_validate(_without_nulls(document.get("status") or {}))
    except ValidationError as error:
        raise HyperJobError(_format_errors("status", error)) from error


def _has_too_many_values(value: Any) -> bool:
    """Return whether *value* has more members and items than a spec may have, at any depth."""
    parts, count = [value], 0
    while parts:
        part = parts.pop()
        if isinstance(part, dict | list):
            count += len(part)
            if count > _MAX_VALUES:
                return True
            parts += part.values() if isinstance(part, dict) else part
    return False


def _without_nulls(value: Any, depth: int = 0) -> Any:
    """Return *value* without null members, as Kubernetes reads them; raise `HyperJobError` if it is nested too deep."""
    if depth > _MAX_DEPTH:
        raise HyperJobError(f"it is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        return {name: _without_nulls(item, depth + 1) for name, item in value.items() if item is not None}
    return [_without_nulls(item, depth + 1) for item in value if item is not None] if isinstance(value, list) else value


def _spec(resource: Resource, spec: Any) -> HyperJobSpec:
    if resource is HYPERJOBS:
        parsed = HyperJobSpec.model_validate(spec or {})
    else:
        parsed = BatchHyperJobSpec.model_validate(spec or {}).as_spec()
    return parsed.with_complete_templates()


def _format_errors(section: str, error: ValidationError) -> str:
    """Return the messages of the first errors."""
    # The input of each error is the enclosing object, so all inputs together could be quadratic in its size.
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(_format_error(section, error_details) for error_details in details[:_MAX_ERRORS])


def _format_error(section: str, details: Any) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in details["loc"])
    return f"{section}{path}: {describe_value_error(details)}"
