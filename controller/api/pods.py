"""A pod template, as far as it says what a pod asks for."""

from typing import Any

import msgspec

from controller.api.meta import Quantities


class ResourceRequirements(msgspec.Struct, rename="camel", frozen=True):
    """What is asked for and what is the most, of a container or of a whole pod."""

    requests: Quantities = msgspec.field(default_factory=dict)
    limits: Quantities = msgspec.field(default_factory=dict)


class Container(msgspec.Struct, rename="camel", frozen=True):
    """One container; an init container with ``restartPolicy: Always`` stays beside the others."""

    resources: ResourceRequirements | None = None
    restart_policy: str = ""


class PodResourceClaim(msgspec.Struct, rename="camel", frozen=True):
    """Devices that a pod asks for by dynamic resource allocation; one of the two names is set."""

    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(msgspec.Struct, rename="camel", frozen=True):
    """What runs in the pod."""

    containers: list[Container] = msgspec.field(default_factory=list)
    init_containers: list[Container] = msgspec.field(default_factory=list)
    overhead: Quantities = msgspec.field(default_factory=dict)
    resources: ResourceRequirements | None = None
    priority_class_name: str = ""
    node_selector: Any = None
    affinity: Any = None
    tolerations: Any = None
    resource_claims: list[PodResourceClaim] = msgspec.field(default_factory=list)


class PodTemplate(msgspec.Struct, rename="camel", frozen=True):
    """The pods of one task."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)
