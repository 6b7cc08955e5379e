"""Wire types of a pod template, with the fields that its requests depend on, and of its node constraints."""

from typing import Any

import msgspec

from controller.api.meta import Quantities


class ResourceRequirements(msgspec.Struct, rename="camel", frozen=True):
    """Requests and limits of a container or of a pod."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(msgspec.Struct, rename="camel", frozen=True):
    """One container; an init container with ``restartPolicy: Always`` is a sidecar."""

    resources: ResourceRequirements | None = None
    restart_policy: str = ""


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


_ENCODER = msgspec.json.Encoder(order="deterministic")

_DECODER = msgspec.json.Decoder(NodeClaim)

_NOTHING = NodeClaim()


def encode_node_claim(claim: NodeClaim) -> str:
    """Return *claim* as JSON, equal for equal claims; empty for no constraints."""
    return "" if claim == _NOTHING else _ENCODER.encode(claim).decode()


def decode_node_claim(text: str) -> NodeClaim:
    """Decode a claim that `encode_node_claim` returned."""
    return _DECODER.decode(text) if text else _NOTHING
