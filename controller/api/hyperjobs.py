"""The HyperJob in both spellings, and the one form in which the rest of the project sees it.

`training.volcano.sh` is upstream's API with optional fields of ours; the
documentation's `batch.volcano.sh` is read as a HyperJob of one replicated job
without a name. The CRDs are generated from these models.
"""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from controller.api.hyperjobstatus import HyperJobStatus
from controller.api.keys import BATCH_HYPERJOBS, HYPERJOBS, Resource
from controller.api.volcanojobs import JobSpec

Strategy = Literal["ByCluster", "ByReplicas", "ByResources", "Static", "Auto"]

HYPERJOB_RESOURCES: tuple[Resource, ...] = (HYPERJOBS, BATCH_HYPERJOBS)


#: More are not read.
_MAX_ERRORS = 10


class HyperJobError(ValueError):
    """An object that is no HyperJob; the message names the fields and what is wrong with them."""


def validation_rules(*rules: tuple[str, str]) -> ConfigDict:
    """Return the configuration of a model with *rules* that the API server checks, each with its message."""
    return ConfigDict(
        json_schema_extra={"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules]}
    )


def list_map_by(key: str) -> dict[str, Any]:
    """Return the schema of a list whose items are told apart by *key*."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class HyperJobModel(BaseModel):
    """A part of a HyperJob's spec; what is unknown is left out, as the API server does."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )


class ClusterShare(HyperJobModel):
    """What one cluster gets of a split job."""

    name: str
    replicas: int | None = Field(None, ge=0)
    """ByCluster: how many pods of the tasks that are divided."""
    weight: int | None = Field(None, ge=1)
    """ByReplicas: the share of this cluster; 1 where it is not set."""


class SplitPolicy(HyperJobModel):
    """How one job becomes several."""

    model_config = validation_rules(
        ("!has(self.accelerators) || has(self.acceleratorType)", "accelerators needs acceleratorType"),
        (
            "!has(self.strategy) || self.strategy != 'ByCluster' || has(self.clusters)",
            "a split ByCluster needs clusters, each with its replicas",
        ),
    )

    mode: Literal["static", "auto"] | None = None
    """Upstream's choice: equal parts, or parts by what the clusters can hold."""
    accelerators: int | None = Field(None, ge=1)
    """How many accelerators all parts have together; unset: as many as the template asks for."""
    accelerator_type: str | None = None
    """The resource name of the accelerators, such as nvidia.com/gpu."""
    strategy: Strategy | None = Field(None, json_schema_extra={"maxLength": 16})
    """ByCluster, ByReplicas, ByResources, Static or Auto; counts before mode."""
    clusters: tuple[ClusterShare, ...] = Field((), max_length=500, json_schema_extra=list_map_by("name"))
    """ByCluster and ByReplicas: who gets a part; ByResources: the order in which clusters are filled."""
    parts: int | None = Field(None, ge=1, json_schema_extra={"maximum": 1000})
    """ByReplicas: how many equal parts there are."""
    min_replicas: int | None = Field(None, ge=1)
    """ByResources and Auto: the fewest pods that a part may have."""

    @property
    def chosen(self) -> Strategy:
        """Return the strategy; without any, ByCluster where clusters are named and Auto otherwise."""
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
    """Where: AnyCluster leaves out those where it failed, as far as the split policy does not name its cluster."""
    below_minimum: Literal["Rollback", "Keep"] = "Rollback"
    """When fewer parts than minAvailable can succeed: stop all of them, or let the others run to their end."""
    max_restarts: int = Field(0, ge=0)
    """How often a HyperJob that was rolled back starts again from the beginning."""


_OPTION_RULES = (
    ("!has(self.minAvailable) || self.minAvailable >= 1", "minAvailable is one or more; leave it out for all parts"),
    ("!has(self.maxDomains) || self.maxDomains >= 1", "maxDomains is one or more; leave it out for no limit"),
)


class HyperJobOptions(HyperJobModel):
    """What both spellings have besides what is split; all of it is optional."""

    model_config = validation_rules(*_OPTION_RULES)

    min_available: int | None = None
    """How many parts must be admitted together and must not fail; unset: all of them."""
    max_domains: int | None = None
    """On how many clusters an automatic split may put its parts."""
    suspend: bool = False
    """Stops all parts and keeps the HyperJob; set it back to start again."""
    ttl_seconds_after_finished: int | None = Field(None, ge=0)
    """After how many seconds a finished HyperJob is deleted, with all its parts."""
    failure_policy: FailurePolicy = FailurePolicy()
    cleanup_policy: Literal["None", "All"] = "None"
    """Which finished parts are deleted once the HyperJob has finished; those that still run always are."""
    cluster_affinity: dict[str, Any] | None = None
    """Which clusters may take parts, as in a PropagationPolicy's placement."""
    cluster_tolerations: tuple[dict[str, Any], ...] = ()
    """Which taints of clusters the parts put up with, as in a PropagationPolicy's placement."""


class ReplicatedJob(HyperJobModel):
    """A Volcano Job and how it is multiplied or split."""

    name: str
    template_spec: JobSpec
    split_policy: SplitPolicy | None = None
    """Unset: it is not split; replicas copies of it run."""
    replicas: int = Field(1, json_schema_extra={"x-default": 1, "maximum": 1000})
    """How many copies there are; with a static split, how many parts."""
    cluster_names: tuple[str, ...] = ()
    """The clusters it should go to before all others, in this order."""


class HyperJobSpec(HyperJobOptions):
    """Upstream's spec and our options: the one form that everything works on."""

    model_config = validation_rules(
        *_OPTION_RULES,
        (
            "!has(self.replicatedJobs) || self.replicatedJobs.map(j, has(j.replicas) ? j.replicas : 1).sum() <= 1000",
            "all replicated jobs together have at most 1000 replicas",
        ),
    )

    replicated_jobs: tuple[ReplicatedJob, ...] = Field((), json_schema_extra={**list_map_by("name"), "maxItems": 1000})
    plugins: dict[str, list[str]] = Field(default_factory=dict)
    """Volcano plugins that every part gets unless its template names them."""


class JobTemplate(HyperJobModel):
    """The logical job of the documentation's spelling."""

    api_version: Literal["batch.volcano.sh/v1alpha1"] = "batch.volcano.sh/v1alpha1"
    kind: Literal["Job"] = "Job"
    spec: JobSpec


class BatchHyperJobSpec(HyperJobOptions):
    """The documentation's spec and our options."""

    template: JobTemplate
    split_policy: SplitPolicy | None = None

    def as_spec(self) -> HyperJobSpec:
        """Return it as a HyperJob of one replicated job without a name."""
        job = ReplicatedJob(name="", template_spec=self.template.spec, split_policy=self.split_policy)
        options = {name: getattr(self, name) for name in HyperJobOptions.model_fields}
        return HyperJobSpec(replicated_jobs=(job,), **options)


class Metadata(HyperJobModel):
    """Who a HyperJob is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    annotations: dict[str, str] = Field(default_factory=dict)


class HyperJob(HyperJobModel):
    """One HyperJob in the one form; *resource* is the spelling it was written in."""

    resource: Resource
    metadata: Metadata
    spec: HyperJobSpec
    status: HyperJobStatus = HyperJobStatus()

    @property
    def path(self) -> str:
        """Return ``namespace/name``, as messages name it."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def name_of(self, job: ReplicatedJob, index: int) -> str:
        """Return the name of a part: `{hyperjob}-{replicatedjob}-{index}`, without what has no name."""
        return "-".join(filter(None, (self.metadata.name, job.name, str(index))))


def hyperjob_resource(api_version: str) -> Resource:
    """Return which spelling *api_version* is."""
    for resource in HYPERJOB_RESOURCES:
        if resource.api_version == api_version:
            return resource
    raise HyperJobError(f"apiVersion {api_version!r} has no HyperJob; write {HYPERJOBS.api_version}")


def read_hyperjob(document: dict[str, Any]) -> HyperJob:
    """Return the HyperJob that *document* describes, or raise `HyperJobError`; a null is a field that is not set."""
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
    """Return the status in *document*, or raise `HyperJobError`; it may be there without a readable spec."""
    try:
        return HyperJobStatus.model_validate(_without_nulls(document.get("status") or {}))
    except ValidationError as error:
        raise HyperJobError(_format_errors("status", error)) from error


def _without_nulls(value: Any) -> Any:
    """Return *value* without the members that are null, as Kubernetes reads them."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value if each is not None] if isinstance(value, list) else value


def _spec(resource: Resource, spec: Any) -> HyperJobSpec:
    if resource is HYPERJOBS:
        return HyperJobSpec.model_validate(spec or {})
    return BatchHyperJobSpec.model_validate(spec or {}).as_spec()


def _format_errors(section: str, error: ValidationError) -> str:
    """Return what is wrong with the first fields that are wrong."""
    # The input of each error is the object around it: together they would be its square.
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(_format_error(section, each) for each in details[:_MAX_ERRORS])


def _format_error(section: str, details: Any) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in details["loc"])
    message: str = details["msg"].removeprefix("Value error, ")
    return f"{section}{path}: {message[:1].lower()}{message[1:]}"
