"""Protobuf messages of Karmada's scheduler estimator, with the fields that are used.

Field numbers are those of Karmada's ``estimator.proto``. Until 1.17 requests, affinity and tolerations were Kubernetes'
own messages; since 1.18 they are the same bytes in fields with other numbers. Both are written, and each version reads
its own.
"""

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from controller.api.jobs import NodeSelector, NodeSelectorRequirement, Toleration, decode_node_claim
from controller.api.quantity import format_quantity
from controller.engine.state.estimates import Query
from controller.engine.state.requests import PodSet
from controller.engine.state.resources import PODS

_SERVICE: Final = "/github.com.karmada_io.karmada.pkg.estimator.service.Estimator"
MAX_AVAILABLE_REPLICAS: Final = f"{_SERVICE}/MaxAvailableReplicas"
MAX_AVAILABLE_COMPONENT_SETS: Final = f"{_SERVICE}/MaxAvailableComponentSets"

#: Answer of a server without nodes and quota: the number is unlimited.
UNLIMITED: Final = 2**31 - 1
#: Not a valid namespace name, so that no ResourceQuota of the member cluster counts: queues limit usage.
_NO_NAMESPACE: Final = "-"

_TEXT = FieldDescriptorProto.TYPE_STRING
_BYTES = FieldDescriptorProto.TYPE_BYTES
_INT32 = FieldDescriptorProto.TYPE_INT32
_INT64 = FieldDescriptorProto.TYPE_INT64

_Field = tuple[str, int, int | str, bool]
"""Name, number, type or message name, and whether it is repeated. A map is a repeated entry message."""

_MESSAGES: Final[dict[str, tuple[_Field, ...]]] = {
    "Quantity": (("string", 1, _TEXT, False),),
    "TextEntry": (("key", 1, _TEXT, False), ("value", 2, _TEXT, False)),
    "AmountEntry": (("key", 1, _TEXT, False), ("value", 2, "Quantity", False)),
    "NodeSelectorRequirement": (("key", 1, _TEXT, False), ("operator", 2, _TEXT, False), ("values", 3, _TEXT, True)),
    "NodeSelectorTerm": (
        ("matchExpressions", 1, "NodeSelectorRequirement", True),
        ("matchFields", 2, "NodeSelectorRequirement", True),
    ),
    "NodeSelector": (("nodeSelectorTerms", 1, "NodeSelectorTerm", True),),
    "Toleration": (
        ("key", 1, _TEXT, False),
        ("operator", 2, _TEXT, False),
        ("value", 3, _TEXT, False),
        ("effect", 4, _TEXT, False),
        ("tolerationSeconds", 5, _INT64, False),
    ),
    "NodeClaim": (
        ("nodeAffinity", 1, "NodeSelector", False),
        ("nodeSelector", 2, "TextEntry", True),
        ("tolerations", 3, "Toleration", True),
        ("nodeAffinityBytes", 4, _BYTES, False),
        ("tolerationsBytes", 5, _BYTES, True),
    ),
    "ReplicaRequirements": (
        ("nodeClaim", 1, "NodeClaim", False),
        ("resourceRequest", 2, "AmountEntry", True),
        ("namespace", 3, _TEXT, False),
        ("resourceRequestBytes", 5, "AmountEntry", True),
    ),
    "ComponentReplicaRequirements": (
        ("nodeClaim", 1, "NodeClaim", False),
        ("resourceRequest", 2, "AmountEntry", True),
        ("resourceRequestBytes", 4, "AmountEntry", True),
    ),
    "Component": (
        ("name", 1, _TEXT, False),
        ("replicaRequirements", 2, "ComponentReplicaRequirements", False),
        ("replicas", 3, _INT32, False),
    ),
    "MaxAvailableReplicasRequest": (
        ("cluster", 1, _TEXT, False),
        ("replicaRequirements", 2, "ReplicaRequirements", False),
    ),
    "MaxAvailableComponentSetsRequest": (("cluster", 1, _TEXT, False), ("components", 2, "Component", True)),
    "Response": (("count", 1, _INT32, False),),
}


def _build() -> dict[str, Any]:
    file = FileDescriptorProto(name="estimator.proto", package="estimator", syntax="proto3")
    for name, parts in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, is_repeated in parts:
            label = FieldDescriptorProto.LABEL_REPEATED if is_repeated else FieldDescriptorProto.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".estimator.{kind}"
            else:
                added.type = kind
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"estimator.{name}")) for name in _MESSAGES}


TYPES: Final = _build()
"""The message classes, by name."""


class ResponseError(ValueError):
    """An invalid answer."""


def replicas_request(query: Query) -> bytes:
    """Return the request for the number of pods that fit, for a gang of equal pods."""
    pods = query.gang[0]
    requirements = TYPES["ReplicaRequirements"](
        nodeClaim=_node_claim(pods),
        resourceRequest=_amounts(pods),
        resourceRequestBytes=_amounts(pods),
        namespace=_NO_NAMESPACE,
    )
    return _bytes(TYPES["MaxAvailableReplicasRequest"](cluster=query.cluster, replicaRequirements=requirements))


def component_sets_request(query: Query) -> bytes:
    """Return the request for the number of whole gangs that fit."""
    components = [
        TYPES["Component"](
            name=f"pods-{number}",
            replicas=min(pods.minimum, UNLIMITED),
            replicaRequirements=TYPES["ComponentReplicaRequirements"](
                nodeClaim=_node_claim(pods), resourceRequest=_amounts(pods), resourceRequestBytes=_amounts(pods)
            ),
        )
        for number, pods in enumerate(query.gang)
    ]
    return _bytes(TYPES["MaxAvailableComponentSetsRequest"](cluster=query.cluster, components=components))


def count(response: bytes) -> int | None:
    """Return the number in *response*, ``None`` where nothing limits it. Raises `ResponseError`."""
    try:
        number = TYPES["Response"].FromString(response).count
    except DecodeError as error:
        raise ResponseError("the answer is not an estimator message") from error
    if number < 0:
        raise ResponseError(f"the answer is {number}")
    return None if number == UNLIMITED else int(number)


def _bytes(message: Any) -> bytes:
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def _amounts(pods: PodSet) -> list[Any]:
    entry, quantity = TYPES["AmountEntry"], TYPES["Quantity"]
    return [
        entry(key=name, value=quantity(string=format_quantity(name, amount)))
        for name, amount in pods.requests
        if name != PODS
    ]


def _node_claim(pods: PodSet) -> Any:
    if not pods.node_claim:
        return None
    claim = decode_node_claim(pods.node_claim)
    tolerations = [_toleration(toleration) for toleration in claim.tolerations]
    made = TYPES["NodeClaim"](
        nodeSelector=[TYPES["TextEntry"](key=key, value=value) for key, value in sorted(claim.node_selector.items())],
        tolerations=tolerations,
        tolerationsBytes=[_bytes(toleration) for toleration in tolerations],
    )
    if claim.node_affinity is not None:
        affinity = _selector(claim.node_affinity)
        made.nodeAffinity.CopyFrom(affinity)
        made.nodeAffinityBytes = _bytes(affinity)
    return made


def _toleration(toleration: Toleration) -> Any:
    made = TYPES["Toleration"](
        key=toleration.key, operator=toleration.operator, value=toleration.value, effect=toleration.effect
    )
    if toleration.toleration_seconds is not None:
        made.tolerationSeconds = max(min(toleration.toleration_seconds, 2**63 - 1), -(2**63))
    return made


def _selector(selector: NodeSelector) -> Any:
    terms = [
        TYPES["NodeSelectorTerm"](
            matchExpressions=_requirements(term.match_expressions), matchFields=_requirements(term.match_fields)
        )
        for term in selector.node_selector_terms
    ]
    return TYPES["NodeSelector"](nodeSelectorTerms=terms)


def _requirements(requirements: Iterable[NodeSelectorRequirement]) -> list[Any]:
    kind = TYPES["NodeSelectorRequirement"]
    return [
        kind(key=requirement.key, operator=requirement.operator, values=requirement.values)
        for requirement in requirements
    ]
