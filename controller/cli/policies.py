"""Selects the propagation policy of a template as Karmada's detector does.

Namespaced policies precede cluster-scoped ones, then higher explicit priority, then
the more specific selector, then the name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec

from controller.api.bindings import ClusterAffinity, LabelSelector, Placement
from controller.api.keys import Resource
from controller.api.meta import WatchedObject, decode_watched
from controller.cache.translate.bindings import translate_placement
from controller.cli.input.manifests import Manifest
from controller.engine.placement.filter import matches
from controller.engine.state.clusters import Cluster, ClusterName

POLICIES = Resource("policy.karmada.io", "v1alpha1", "propagationpolicies", "PropagationPolicy")
CLUSTER_POLICIES = Resource(
    "policy.karmada.io", "v1alpha1", "clusterpropagationpolicies", "ClusterPropagationPolicy", namespaced=False
)


class ResourceSelector(msgspec.Struct, rename="camel", frozen=True):
    """Selects templates by kind, namespace, name and labels."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    label_selector: LabelSelector | None = None


class PolicySpec(msgspec.Struct, rename="camel", frozen=True):
    """The fields of a policy's ``spec`` that are read."""

    resource_selectors: list[ResourceSelector] = msgspec.field(default_factory=list)
    placement: Placement = msgspec.field(default_factory=Placement)
    priority: int = 0


class PropagationPolicy(WatchedObject, frozen=True):
    """A PropagationPolicy or ClusterPropagationPolicy; the latter has no namespace."""

    spec: PolicySpec = msgspec.field(default_factory=PolicySpec)


_POLICY = msgspec.json.Decoder(PropagationPolicy)


class Match(IntEnum):
    """Specificity of a selector; a more specific one has a higher value."""

    NONE = 0
    ALL = 1
    LABELS = 2
    NAME = 3


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, with the placement that Karmada copies into bindings."""

    wire: PropagationPolicy
    placement: Mapping[str, Any]

    @property
    def namespace(self) -> str:
        """Return the namespace of the policy, empty for a cluster-scoped one."""
        return self.wire.metadata.namespace


def read_policy(manifest: Manifest) -> Policy:
    """Return the policy in *manifest*, which has been validated."""
    wire = decode_watched(_POLICY, manifest.raw)
    return Policy(wire, (manifest.body.get("spec") or {}).get("placement") or {})


def matching_policy(template: Manifest, policies: Iterable[Policy]) -> Policy | None:
    """Return the policy that propagates *template*, or ``None`` if none selects it."""
    selecting = [
        (match, policy)
        for policy in policies
        if policy.wire.metadata.deletion_timestamp is None and (match := _match(policy, template))
    ]
    return min(selecting, key=lambda pair: _sort_key(*pair))[1] if selecting else None


def _sort_key(closeness: Match, policy: Policy) -> tuple[bool, int, int, str]:
    return not policy.namespace, -policy.wire.spec.priority, -closeness, policy.wire.metadata.name


def _match(policy: Policy, template: Manifest) -> Match:
    if policy.namespace not in {"", template.namespace}:
        return Match.NONE
    return max(
        (_match_selector(selector, template) for selector in policy.wire.spec.resource_selectors), default=Match.NONE
    )


def _match_selector(selector: ResourceSelector, template: Manifest) -> Match:
    if (selector.api_version, selector.kind) != (template.api_version, template.kind):
        return Match.NONE
    if selector.namespace not in {"", template.namespace}:
        return Match.NONE
    if selector.name:  # Karmada ignores the labels if there is a name
        return Match.NAME if selector.name == template.name else Match.NONE
    if selector.label_selector is None:
        return Match.ALL
    labels = template.body["metadata"].get("labels") or {}
    return Match.LABELS if _labels_match(selector.label_selector, labels) else Match.NONE


def _labels_match(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether *selector* selects an object with *labels*, evaluated as for a cluster with these labels."""
    translated = translate_placement(Placement(cluster_affinity=ClusterAffinity(label_selector=selector)))
    return translated.affinity is not None and matches(translated.affinity, Cluster(ClusterName(""), labels=labels))
