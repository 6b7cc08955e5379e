"""Wire types of a pod template, with the fields that its requests depend on."""

from typing import Any

import msgspec

from controller.api.meta import Quantities


class ResourceRequirements(msgspec.Struct, rename="camel", frozen=True):
    """Requests and limits of a container or of a pod."""

    requests: Quantities = msgspec.field(default_factory=dict)
    limits: Quantities = msgspec.field(default_factory=dict)


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
    """Pod template of a task."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)
