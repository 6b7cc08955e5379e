"""Wire types of the Volcano Job and of templates of other kinds: counted fields, and node constraints of pods."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from controller.api.meta import Quantities, WatchedObject, decode_watched

_ENCODER = msgspec.json.Encoder(order="deterministic")
_ESTIMATE = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:ns|us|µs|μs|ms|s|m|h)){1,8}", re.ASCII)
_ESTIMATE_PART = re.compile(r"([\d.]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}


class ResourceRequirements(msgspec.Struct, rename="camel", frozen=True):
    """Requests and limits of a container or of a pod."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(msgspec.Struct, rename="camel", frozen=True):
    """One container; an init container with ``restartPolicy: Always`` is a sidecar."""

    resources: ResourceRequirements | None = None
    restart_policy: str = ""
    image: str = ""


class PodResourceClaim(msgspec.Struct, rename="camel", frozen=True):
    """Devices that a pod requests by dynamic resource allocation; one of the two names is set."""

    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(msgspec.Struct, rename="camel", frozen=True):
    """Spec of a pod."""

    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: Quantities = msgspec.field(default_factory=dict)
    resources: ResourceRequirements | None = None
    priority_class_name: str = ""
    node_selector: Any = None
    affinity: Any = None
    tolerations: Any = None
    resource_claims: list[PodResourceClaim] = msgspec.field(default_factory=list)
    termination_grace_period_seconds: Any = None


class PodTemplate(msgspec.Struct, rename="camel", frozen=True):
    """Pod template of a task."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class NodeSelectorRequirement(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One expression over the labels or fields of a node."""

    key: str
    operator: str
    values: list[str] = msgspec.field(default_factory=list)


class NodeSelectorTerm(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """Expressions that must all match."""

    match_expressions: list[NodeSelectorRequirement] = msgspec.field(default_factory=list)
    match_fields: list[NodeSelectorRequirement] = msgspec.field(default_factory=list)


class NodeSelector(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """Terms of which one must match."""

    node_selector_terms: list[NodeSelectorTerm] = msgspec.field(default_factory=list)


class NodeAffinity(msgspec.Struct, frozen=True):
    """The required part of a pod's node affinity."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class Affinity(msgspec.Struct, rename="camel", frozen=True):
    """The node affinity of a pod."""

    node_affinity: NodeAffinity | None = None


class Toleration(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """A toleration of node taints."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeClaim(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """All node constraints of a pod."""

    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    node_affinity: NodeSelector | None = None
    tolerations: list[Toleration] = msgspec.field(default_factory=list)


_DECODER = msgspec.json.Decoder(NodeClaim)

_NOTHING = NodeClaim()


def encode_node_claim(claim: NodeClaim) -> str:
    """Return *claim* as JSON, equal for equal claims; empty for no constraints."""
    return "" if claim == _NOTHING else _ENCODER.encode(claim).decode()


def decode_node_claim(text: str) -> NodeClaim:
    """Decode a claim that `encode_node_claim` returned."""
    return _DECODER.decode(text) if text else _NOTHING


class PartitionPolicy(msgspec.Struct, rename="camel", frozen=True):
    """Partitions of a task; the pods of a partition start together."""

    partition_size: int = 0
    min_partitions: int = 0


class Task(msgspec.Struct, rename="camel", frozen=True):
    """Equal pods of a job."""

    name: str = ""
    replicas: int = 0
    min_available: int | None = None
    partition_policy: PartitionPolicy | None = None
    template: PodTemplate = PodTemplate()

    @property
    def minimum(self) -> int | None:
        """Number of pods that must run: `minAvailable`, or what its partition policy needs; ``None`` for all (D3)."""
        if self.min_available is not None or self.partition_policy is None:
            return self.min_available
        pods = max(self.partition_policy.min_partitions, 0) * max(self.partition_policy.partition_size, 0)
        return pods or None

    @property
    def effective_min_available(self) -> int:
        """Number of pods of the task that must run, with the default."""
        return self.replicas if self.minimum is None else self.minimum


class JobSpec(msgspec.Struct, rename="camel", frozen=True):
    """Requests and queue of a job."""

    queue: str = ""
    min_available: int = 0
    priority_class_name: str = ""
    running_estimate: str = ""
    tasks: tuple[Task, ...] | None = None


class JobState(msgspec.Struct, rename="camel", frozen=True):
    """Phase of a job, and why it is in this phase."""

    phase: str = ""
    reason: str = ""


class JobStatus(msgspec.Struct, rename="camel", frozen=True):
    """Status of a job, by Karmada from the member clusters, or by the controller while it is pending."""

    state: JobState | None = None


#: Bounds of `spec.runningEstimate`, in seconds.
MIN_ESTIMATE, MAX_ESTIMATE = 1, 365 * 86_400


class EstimateError(ValueError):
    """A `spec.runningEstimate` that is not used; the message says why."""


def parse_running_estimate(text: str) -> int:
    """Return the user's estimate of the run time in whole seconds, 0 without one; raise `EstimateError`.

    It is a duration as Kubernetes writes it, such as ``90s``, ``1h30m`` or ``1.5h``.
    """
    if not text:
        return 0
    shown = repr(text[:40])
    if not _ESTIMATE.fullmatch(text):
        raise EstimateError(f"{shown} is not a duration; write whole numbers with h, m or s, such as 90s or 1h30m")
    seconds = sum(float(amount) * _UNIT_SECONDS[unit] for amount, unit in _ESTIMATE_PART.findall(text))
    if not MIN_ESTIMATE <= seconds <= MAX_ESTIMATE:
        raise EstimateError(f"{shown} is no possible run time; write 1s to 8760h, or remove it if it is unknown")
    return round(seconds)


def default_task_name(index: int) -> str:
    """Return the name that Volcano's webhook gives to a task without one, by its place in the list."""
    return f"default{index}"


def plugin_argument(arguments: Sequence[str], name: str) -> str:
    """Return the value of the flag *name* among a plugin's arguments, empty without it; the last one counts.

    As Volcano reads them, a flag has one dash or two, and its value follows ``=`` or is the next argument.
    """
    value = ""
    for argument, following in zip(arguments, (*arguments[1:], ""), strict=False):
        flag, equals, text = argument.partition("=")
        if flag in {f"-{name}", f"--{name}"}:
            value = text if equals else following
    return value


class Job(WatchedObject, frozen=True):
    """A Volcano Job."""

    spec: JobSpec = msgspec.field(default_factory=JobSpec)


class ObservedJob(Job, frozen=True):
    """A Volcano Job with its status."""

    status: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    """Decoded by `decode_job_state`, so that an unreadable status does not make the job unreadable."""


_JOB_STATUS = msgspec.json.Decoder(JobStatus)

_UNREADABLE_STATE = JobState("Unknown")


def decode_job_state(status: msgspec.Raw) -> JobState:
    """Return the phase and reason in a job's status; phase `Unknown` if they cannot be read."""
    if bytes(status) in {b"", b"null"}:
        return JobState()
    try:
        return _JOB_STATUS.decode(status).state or JobState()
    except (msgspec.MsgspecError, RecursionError):
        return _UNREADABLE_STATE


_JOB = msgspec.json.Decoder(ObservedJob)


def decode_job(raw: bytes | memoryview) -> ObservedJob:
    """Decode a Volcano Job."""
    return decode_watched(_JOB, raw)


class Template(WatchedObject, rename="camel", frozen=True):
    """An object of any kind; only the paths of its kind's integration are read in *spec*."""

    api_version: str = ""
    kind: str = ""
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


_TEMPLATE = msgspec.json.Decoder(Template)


def decode_template(raw: bytes | memoryview) -> Template:
    """Decode an object of any kind."""
    return decode_watched(_TEMPLATE, raw)
