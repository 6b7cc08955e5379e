"""Translates pod templates of all kinds into the engine's."""

from controller.api import pods
from controller.api.meta import Quantities
from controller.cache.translate.nodeclaims import node_claim
from controller.cache.translate.units import parse_resources
from controller.engine.state.requests import Container, PodTemplate
from controller.engine.state.resources import EMPTY, Resources


def translate_pod_template(pod: pods.PodSpec, where: str) -> PodTemplate:
    """Return the requests of *pod*; *where* is its field path in an `AmountError`."""
    whole = pod.resources or pods.ResourceRequirements()
    return PodTemplate(
        containers=_containers(pod.containers, f"{where}.containers"),
        init=_containers(pod.init_containers, f"{where}.initContainers"),
        overhead=_parse_resources(pod.overhead, f"{where}.overhead"),
        requests=_parse_resources(whole.requests, f"{where}.resources.requests"),
        limits=_parse_resources(whole.limits, f"{where}.resources.limits"),
        priority_class=pod.priority_class_name,
        node_claim=node_claim(pod),
        claims=tuple(_claim_template_name(claim) for claim in pod.resource_claims),
    )


def _claim_template_name(claim: pods.PodResourceClaim) -> str:
    """Return the name of a ResourceClaimTemplate; a shared claim has none, and cannot be mapped."""
    return claim.resource_claim_template_name or f"ResourceClaim {claim.resource_claim_name or ''}".strip()


def _containers(containers: list[pods.Container], where: str) -> tuple[Container, ...]:
    return tuple(_container(container, f"{where}[{index}]") for index, container in enumerate(containers))


def _container(container: pods.Container, where: str) -> Container:
    asked = container.resources or pods.ResourceRequirements()
    return Container(
        requests=_parse_resources(asked.requests, f"{where}.resources.requests"),
        limits=_parse_resources(asked.limits, f"{where}.resources.limits"),
        restarts=container.restart_policy == "Always",
    )


def _parse_resources(quantities: Quantities, where: str) -> Resources:
    return parse_resources(quantities, where) if quantities else EMPTY
