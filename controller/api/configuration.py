"""Models of the VolcanoGlobalConfiguration, with validation and error messages.

Controller and webhook read its file; console and command line read what the controller has published.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from controller.api.hyperjob_validation import MAX_PARTS
from controller.api.quantity import QuantityError, parse_quantity
from controller.api.yaml_errors import describe_value_error, describe_yaml_error

_DURATION = re.compile(r"([0-9]{1,9})([smh])")

_SECONDS = {"s": 1, "m": 60, "h": 3600}


def _shown(value: object) -> str:
    return "null" if value is None else repr(value)


def parse_duration(value: object) -> timedelta:
    """Return the duration *value*; raise `ValueError` with the expected format if it is invalid."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(
            f"{_shown(value)} is not a duration; write a whole number and s, m or h, such as 90s, 10m or 2h"
        )
    return timedelta(seconds=int(match[1]) * _SECONDS[match[2]])


def parse_time(value: object) -> object:
    """Return a time of YAML; raise `ValueError` for numbers and for dates alone, which pydantic would accept."""
    if not isinstance(value, str | datetime) or (isinstance(value, str) and "T" not in value):
        raise ValueError(f"{_shown(value)} is not a time; write it with its zone, such as 2030-01-31T08:00:00Z")
    return value


Time = Annotated[AwareDatetime, BeforeValidator(parse_time)]

Duration = Annotated[timedelta, BeforeValidator(parse_duration)]

API_VERSION: Literal["config.volcano-global.io/v1alpha1"] = "config.volcano-global.io/v1alpha1"

KIND: Literal["VolcanoGlobalConfiguration"] = "VolcanoGlobalConfiguration"

Name = Annotated[str, StringConstraints(min_length=1, max_length=253)]

StatusPath = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]*(\.[A-Za-z][A-Za-z0-9]*)*$", max_length=253)
]

"""Path of a field of a status: ``state.phase``."""

SpecPath = Annotated[str, StringConstraints(pattern=r"^spec(\.[A-Za-z][A-Za-z0-9]*)+$", max_length=253)]

"""Path of a field of an object: ``spec.template.spec.priorityClassName``."""

#: Number of hexadecimal digits of a revision.
_REVISION_DIGITS = 12
#: The key of the chart's values that contains the configuration.
_HELM_KEY = "admission"


class ConfigurationError(ValueError):
    """An invalid configuration; the message names each key and what to write."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Resize(_Section):
    """Handling of admitted workloads that request more than their charge (D7)."""

    action: Literal["Evict", "Report"] = "Evict"
    grace_period: Duration = timedelta(minutes=5)


class HeadReservation(_Section):
    """When and for how long capacity is reserved for a queue's blocked head (O6), and how much may be idle (O8)."""

    after: Duration = timedelta(minutes=10)
    max: Duration = timedelta(hours=2)
    max_idle: float = Field(default=0.1, ge=0, le=1)
    """Fraction of a cluster that may be idle for a reservation, on average over *max*."""


class Backfill(_Section):
    """Whether workloads that end in time may use reserved capacity (O9), and what happens to those that do not end."""

    enabled: bool = True
    confidence: float = Field(default=0.9, ge=0.5, le=0.999)
    """The quantile of the learned run times that counts as the expected run time, and how probably no workload that is
    backfilled onto a reservation ends too late."""
    on_overrun: Literal["Keep", "Evict"] = "Keep"


class Ageing(_Section):
    """How waiting raises job priority inside a queue (O10): by *step* each time *after* has passed, at most by *max*.

    Off by default, because PriorityClasses alone decide then.
    """

    after: Duration = timedelta(0)
    step: int = Field(default=0, ge=0, le=2_000_000_000)
    max: int = Field(default=0, ge=0, le=2_000_000_000)

    @model_validator(mode="after")
    def _is_on_or_off(self) -> "Ageing":
        if len({bool(self.after), bool(self.step), bool(self.max)}) > 1:
            raise ValueError("after, step and max belong together; set all of them, or none")
        if timedelta(0) < self.after < timedelta(seconds=10):
            raise ValueError("the order would be updated all the time; write after: 10s or more")
        if self.step > self.max:
            raise ValueError(f"step is {self.step} and max {self.max}; write a step of at most max")
        return self


class AdvanceReservation(_Section):
    """Capacity that is kept free for some time (O11): for a queue, for a workload, or for maintenance."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
    clusters: tuple[Name, ...] = Field(min_length=1, max_length=1000)
    since: Time = Field(alias="from")
    until: Time
    queue: Name | None = None
    workload: Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]+/[a-z0-9.-]+$", max_length=317)] | None = None
    """``namespace/name``."""
    amounts: dict[Name, str | int | float] | None = Field(default=None, min_length=1, max_length=64)
    """What is kept free on each of the clusters; the whole clusters without it."""
    evict: bool = False
    drain: Duration = timedelta(hours=24)
    """How long before the begin a workload of unknown run time is not admitted there any more: a day, which is longer
    than most run times."""

    @field_validator("amounts")
    @classmethod
    def _are_positive(cls, amounts: dict[str, str | int | float] | None) -> dict[str, str | int | float] | None:
        for name, quantity in (amounts or {}).items():
            if parse_quantity(name, quantity) <= 0:
                raise ValueError(f"{name} is {quantity}; write more than zero, or leave it out")
        return amounts

    @model_validator(mode="after")
    def _is_possible(self) -> "AdvanceReservation":
        if self.until <= self.since:
            raise ValueError("it ends before it begins; write a later time for until")
        if self.queue is not None and self.workload is not None:
            raise ValueError("it is for a queue or for a workload; set one of them, or none for maintenance")
        return self


class Eviction(_Section):
    """Whether and when admitted workloads may be evicted for others (P)."""

    enabled: bool = False
    min_runtime: Duration = timedelta(minutes=5)
    max_evictions: int = Field(default=3, ge=0)
    grace_period: Duration = timedelta(seconds=30)


class Tenant(_Section):
    """Queues and PriorityClasses that some namespaces may use (Q7); an empty list does not restrict."""

    namespaces: tuple[Name, ...] = Field(min_length=1)
    queues: tuple[Name, ...] = ()
    priority_classes: tuple[Name, ...] = ()


class LabelRequirement(_Section):
    """One label expression of a cluster selector."""

    key: Name
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _counts_values(self) -> "LabelRequirement":
        if (self.operator in {"In", "NotIn"}) != bool(self.values):
            raise ValueError("In and NotIn need values; Exists and DoesNotExist take none")
        return self


class ClusterSelector(_Section):
    """Selects clusters by labels; all requirements must match."""

    match_labels: dict[Name, str] = Field(default_factory=dict)
    match_expressions: tuple[LabelRequirement, ...] = ()

    @model_validator(mode="after")
    def _selects(self) -> "ClusterSelector":
        if not self.match_labels and not self.match_expressions:
            raise ValueError("it selects every cluster; write matchLabels or matchExpressions")
        return self


class NodeShape(_Section):
    """Equal nodes of a cluster: their number, and the allocatable resources of one."""

    count: int = Field(ge=1, le=100_000)
    allocatable: dict[Name, str | int | float] = Field(min_length=1)

    @field_validator("allocatable")
    @classmethod
    def _are_quantities(cls, allocatable: dict[str, str | int | float]) -> dict[str, str | int | float]:
        for name, quantity in allocatable.items():
            if parse_quantity(name, quantity) < 0:
                raise ValueError(f"{name} is {quantity}; write zero or more")
        return allocatable


class NodeShapes(_Section):
    """All nodes of some clusters (C3); the clusters are given by name or by labels."""

    clusters: Annotated[tuple[Name, ...], Field(min_length=1)] | ClusterSelector
    nodes: tuple[NodeShape, ...] = Field(min_length=1, max_length=100)


class Finished(_Section):
    """How the status that clusters report says that a workload finished (D8).

    The value at *path* is one of *values*, or one of *conditions* is true.
    """

    path: StatusPath | None = None
    values: tuple[Name, ...] = ()
    conditions: tuple[Name, ...] = ()

    @model_validator(mode="after")
    def _is_whole(self) -> "Finished":
        if (self.path is None) != (not self.values):
            raise ValueError("path and values belong together; set both or neither")
        if self.path is None and not self.conditions:
            raise ValueError("no workload would ever be finished; set path and values, or conditions")
        return self


class IntegrationRule(_Section):
    """A further kind to manage, and the paths of its queue, priority class and finished status."""

    api_version: Annotated[str, StringConstraints(pattern=r"^([a-z0-9.-]+/)?v[a-z0-9]+$")]
    kind: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]*$")]
    queue: SpecPath | None = None
    """Path of the field that names the queue; annotations and labels are the fallback."""
    priority_class: SpecPath = "spec.template.spec.priorityClassName"
    pod_template: SpecPath = "spec.template"
    """Path of the pod template; its annotations and labels are the last fallback for the queue."""
    finished: Finished | None = None
    """Unset: the defaults of Kubernetes' own kinds; other kinds never finish."""

    @property
    def group(self) -> str:
        """API group, empty for the core group."""
        return self.api_version.rpartition("/")[0]


class ResourceClaimTemplate(_Section):
    """Requests of each pod that names a ResourceClaimTemplate with this name (D2).

    The template object itself is not read, because tenants can write it.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253)]
    requests: dict[Name, str | int] = Field(min_length=1)

    @model_validator(mode="after")
    def _can_be_counted(self) -> "ResourceClaimTemplate":
        for resource, quantity in self.requests.items():
            try:
                is_amount = parse_quantity(resource, quantity) > 0
            except QuantityError as error:
                raise ValueError(f"requests: {error}") from error
            if not is_amount:
                raise ValueError(f"requests: {resource} is {quantity}; write more than zero")
        return self


class StaticLocation(_Section):
    """Clusters that hold some data sets of a system; a *name* that ends in ``*`` is a prefix."""

    system: Annotated[str, StringConstraints(min_length=1, max_length=63)]
    type: Annotated[str, StringConstraints(max_length=63)] = ""
    """Empty: every type."""
    name: Annotated[str, StringConstraints(min_length=1, max_length=512)]
    clusters: tuple[Name, ...] = Field(min_length=1, max_length=1000)


class DataSources(_Section):
    """How the data of DataSourceClaims are located (C6)."""

    time_to_live: Duration = timedelta(minutes=10)
    """How long a located data set counts without another request to its plugin."""
    on_move: Literal["Keep", "Requeue"] = "Keep"
    """What happens to admitted workloads whose data move, unless their claims say otherwise."""
    reclaim_policy: Literal["Retain", "Delete"] = "Retain"
    """Of the DataSources that the controller creates."""
    static: tuple[StaticLocation, ...] = Field(default=(), max_length=1000)
    """Data sets that are located without a plugin; the first match counts."""

    @field_validator("time_to_live")
    @classmethod
    def _is_not_too_short(cls, duration: timedelta) -> timedelta:
        if duration < timedelta(seconds=5):
            raise ValueError("each data set would be requested again all the time; write 5s or more")
        return duration


class Repair(_Section):
    """Deviations that the controller repairs."""

    webhook_configuration: bool = False
    ungated_bindings: bool = False


class StatusUpdates(_Section):
    """Statuses that the controller maintains: of Volcano Jobs until a cluster reports (W2), and of Queues (W4)."""

    pending_jobs: bool = True
    queues: bool = True


class Patches(_Section):
    """Concurrency and rate of writes; *per_second* 0 means no limit, and *burst* 1 no burst."""

    in_flight: int = Field(default=32, ge=1, le=1024)
    per_second: int = Field(default=0, ge=0)
    burst: int = Field(default=1, ge=1, le=10_000)


class VolcanoGlobalConfiguration(_Section):
    """All settings of the operator, with their defaults."""

    api_version: Literal["config.volcano-global.io/v1alpha1"] = API_VERSION
    kind: Literal["VolcanoGlobalConfiguration"] = KIND
    default_queue: Name = "default"
    queue_order: Literal["PriorityFirst", "FairShareFirst"] = "PriorityFirst"
    tenant_fairness: Literal["None", "Namespace", "NamespaceFirst"] = "None"
    resize: Resize = Resize()
    head_reservation: HeadReservation = HeadReservation()
    backfill: Backfill = Backfill()
    ageing: Ageing = Ageing()
    advance_reservations: Annotated[tuple[AdvanceReservation, ...], Field(max_length=100)] = ()
    cluster_status_settle_period: Duration = timedelta(seconds=30)
    startup_timeout: Duration = timedelta(minutes=30)
    reclaim: Eviction = Eviction()
    preemption: Eviction = Eviction()
    tenants: tuple[Tenant, ...] = ()
    unmatched_tenants: Literal["Allow", "Deny"] = "Allow"
    node_shapes: tuple[NodeShapes, ...] = ()
    max_hyper_job_parts: Annotated[int, Field(ge=1, le=MAX_PARTS)] = MAX_PARTS
    integrations: tuple[IntegrationRule, ...] = ()
    resource_claim_templates: tuple[ResourceClaimTemplate, ...] = ()
    node_estimates: Literal["None", "Estimator"] = "None"
    data_sources: DataSources = DataSources()
    queue_validation: Literal["Warn", "Deny"] = "Warn"
    exempt_namespaces: frozenset[Name] = frozenset()
    queue_command_namespaces: frozenset[Name] = frozenset({"default"})
    """Namespaces with Commands that may open and close queues; `vcctl` creates them in ``default``."""
    repair: Repair = Repair()
    status: StatusUpdates = StatusUpdates()
    patches: Patches = Patches()

    @field_validator("startup_timeout")
    @classmethod
    def _leaves_time_to_start(cls, duration: timedelta) -> timedelta:
        if not duration:
            raise ValueError("each workload would be evicted right after its admission; write 1s or more")
        return duration

    @model_validator(mode="after")
    def _names_nothing_twice(self) -> "VolcanoGlobalConfiguration":
        named = {
            "integrations": [f"{rule.kind} of group {rule.group!r}" for rule in self.integrations],
            "advanceReservations": [repr(reservation.name) for reservation in self.advance_reservations],
            "resourceClaimTemplates": [repr(template.name) for template in self.resource_claim_templates],
        }
        for key, names in named.items():
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"{key} names {name} twice; keep one entry")
        return self


def load_configuration(text: str) -> VolcanoGlobalConfiguration:
    """Parse the configuration in the YAML *text*; raise `ConfigurationError` if it is invalid."""
    try:
        document = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader that also refuses repeated keys
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"the VolcanoGlobalConfiguration is not valid YAML: {describe_yaml_error(error)}"
        ) from error
    return check_configuration(document)


def check_configuration(document: object) -> VolcanoGlobalConfiguration:
    """Validate a configuration that was already parsed from YAML."""
    if not isinstance(document, dict):
        raise ConfigurationError(
            f"the VolcanoGlobalConfiguration is a mapping that begins with apiVersion: {API_VERSION}"
        )
    try:
        return VolcanoGlobalConfiguration.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = "; ".join(_format_error(details) for details in error.errors())
        raise ConfigurationError(f"the VolcanoGlobalConfiguration cannot be used: {problems}") from error


def configuration_revision(configuration: VolcanoGlobalConfiguration) -> str:
    """Return a hash of the configuration's contents, the same in every process."""
    document = configuration.model_dump(mode="json", by_alias=True)
    for key in ("exemptNamespaces", "queueCommandNamespaces"):
        document[key] = sorted(document[key])
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:_REVISION_DIGITS]


#: Keys of the ConfigMap in which the controller publishes the active configuration.
_PUBLISHED, _REVISION = "configuration.json", "revision"
#: Keys of the configuration that say which objects are gated.
_GATING_KEYS = ("apiVersion", "kind", "integrations", "exemptNamespaces")


def published_data(configuration: VolcanoGlobalConfiguration) -> dict[str, str]:
    """Return the data of the ConfigMap that publishes *configuration*."""
    document = json.dumps(_as_written(configuration.model_dump(by_alias=True)), separators=(",", ":"))
    return {_PUBLISHED: document, _REVISION: configuration_revision(configuration)}


def read_published(data: Mapping[str, Any]) -> tuple[VolcanoGlobalConfiguration, str]:
    """Return the configuration in the data of the ConfigMap and its revision; raise `ConfigurationError`."""
    document, revision = data.get(_PUBLISHED), data.get(_REVISION)
    if not isinstance(document, str) or not isinstance(revision, str):
        raise ConfigurationError(f"the keys {_PUBLISHED} and {_REVISION} are missing")
    return load_configuration(document), revision


def read_published_kinds(data: Mapping[str, Any]) -> VolcanoGlobalConfiguration:
    """Return what the ConfigMap's data say about gated kinds and namespaces, whatever else another version wrote.

    Raises `ConfigurationError`.
    """
    document = data.get(_PUBLISHED)
    try:
        published = json.loads(document) if isinstance(document, str) else None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{_PUBLISHED} is not valid JSON: {error}") from error
    if not isinstance(published, dict):
        raise ConfigurationError(f"the key {_PUBLISHED} is missing")
    return check_configuration({name: published[name] for name in _GATING_KEYS if name in published})


def _as_written(value: Any) -> Any:
    """Return *value* as an operator writes it: durations in their largest unit, times as text, sets as sorted lists."""
    if isinstance(value, timedelta):
        seconds = int(value.total_seconds())
        # The largest unit, since a number of seconds may have more digits than are read.
        unit = next(unit for unit in ("h", "m", "s") if seconds % _SECONDS[unit] == 0)
        return f"{seconds // _SECONDS[unit]}{unit}"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: _as_written(member) for key, member in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return [_as_written(item) for item in value] if isinstance(value, (list, tuple)) else value


class _StrictLoader(yaml.SafeLoader):
    """Rejects repeated keys, which other parsers may resolve differently, and values that do not have their tag."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - the signature is PyYAML's
        try:
            return super().construct_object(node, deep=deep)
        except (LookupError, AttributeError) as error:
            problem = f"the value does not have the form of its tag {node.tag!r}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - the signature is PyYAML's
        keys: set[Any] = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else id(key)
            if name in keys:
                raise yaml.constructor.ConstructorError(None, None, f"key {name!r} is repeated", key.start_mark)
            keys.add(name)
        return super().construct_mapping(node, deep=deep)


def _format_error(details: ErrorDetails) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in details["loc"]).lstrip(".")
    if details["type"] == "extra_forbidden":
        return f"{path}: unknown key; {_suggest(str(details['loc'][-1]))}"
    return f"{path}: {describe_value_error(details)}" if path else details["msg"].removeprefix("Value error, ")


def _suggest(key: str) -> str:
    if key == _HELM_KEY:
        return "it is a key of the Helm values; write here what is below it"
    near = get_close_matches(key, _KEYS, n=1)
    return f"did you mean {near[0]!r}?" if near else "remove it"


_SECTIONS: list[type[_Section]] = [VolcanoGlobalConfiguration, *_Section.__subclasses__()]

_KEYS = sorted({field.alias or name for section in _SECTIONS for name, field in section.model_fields.items()})
