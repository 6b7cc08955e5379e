"""What a pod asks of its node: selector, required affinity, tolerations (Karmada's NodeClaim)."""

import msgspec


class NodeSelectorRequirement(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One expression over a node's labels or fields."""

    key: str
    operator: str
    values: list[str] = msgspec.field(default_factory=list)


class NodeSelectorTerm(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """Expressions that must all hold."""

    match_expressions: list[NodeSelectorRequirement] = msgspec.field(default_factory=list)
    match_fields: list[NodeSelectorRequirement] = msgspec.field(default_factory=list)


class NodeSelector(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """Terms of which one must hold."""

    node_selector_terms: list[NodeSelectorTerm] = msgspec.field(default_factory=list)


class NodeAffinity(msgspec.Struct, frozen=True):
    """The part of a pod's node affinity that must hold."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class Affinity(msgspec.Struct, rename="camel", frozen=True):
    """A pod's affinity, as far as it speaks of nodes."""

    node_affinity: NodeAffinity | None = None


class Toleration(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """A taint of nodes that a pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeClaim(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """All that a pod asks of its node."""

    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    node_affinity: NodeSelector | None = None
    tolerations: list[Toleration] = msgspec.field(default_factory=list)


_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(NodeClaim)
_NOTHING = NodeClaim()


def encode_node_claim(claim: NodeClaim) -> str:
    """Return *claim* as JSON, equal for equal claims; empty where nothing is asked."""
    return "" if claim == _NOTHING else _ENCODER.encode(claim).decode()


def decode_node_claim(text: str) -> NodeClaim:
    """Return the claim that `encode_node_claim` wrote."""
    return _DECODER.decode(text) if text else _NOTHING
