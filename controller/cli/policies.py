"""Propagation policies, and which of them Karmada's detector lets propagate a template.

Policies of the template's namespace come before those of the whole control
plane; then the explicit priority counts, then how closely they select, then
the name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec

from controller.api import lenient_decode
from controller.api.keys import Resource
from controller.api.meta import WatchedObject
from controller.api.placements import ClusterAffinity, LabelSelector, Placement
from controller.cache.translate.placements import translate_placement
from controller.cli.manifests import Manifest
from controller.engine.candidates import matches
from controller.engine.clusters import Cluster, ClusterName

POLICIES = Resource("policy.karmada.io", "v1alpha1", "propagationpolicies", "PropagationPolicy")
CLUSTER_POLICIES = Resource(
    "policy.karmada.io", "v1alpha1", "clusterpropagationpolicies", "ClusterPropagationPolicy", namespaced=False
)


class ResourceSelector(msgspec.Struct, rename="camel", frozen=True):
    """Which templates a policy is for."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    label_selector: LabelSelector | None = None


class PolicySpec(msgspec.Struct, rename="camel", frozen=True):
    """What goes where."""

    resource_selectors: list[ResourceSelector] = msgspec.field(default_factory=list)
    placement: Placement = msgspec.field(default_factory=Placement)
    priority: int = 0


class PropagationPolicy(WatchedObject, frozen=True):
    """One policy; the cluster-scoped kind has the same form and no namespace."""

    spec: PolicySpec = msgspec.field(default_factory=PolicySpec)


_POLICY = msgspec.json.Decoder(PropagationPolicy)


class Match(IntEnum):
    """How closely a selector selects: the closer, the higher."""

    NONE = 0
    ALL = 1
    LABELS = 2
    NAME = 3


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, with its placement as it is copied into bindings."""

    wire: PropagationPolicy
    placement: Mapping[str, Any]

    @property
    def namespace(self) -> str:
        """Return the namespace it is for; a cluster-scoped one is for all."""
        return self.wire.metadata.namespace


def read_policy(manifest: Manifest) -> Policy:
    """Return the policy in *manifest*, whose fields fit."""
    wire = lenient_decode.decode(_POLICY, manifest.raw)
    return Policy(wire, (manifest.body.get("spec") or {}).get("placement") or {})


def matching_policy(template: Manifest, policies: Iterable[Policy]) -> Policy | None:
    """Return the policy that propagates *template*, ``None`` where none selects it."""
    selecting = [
        (closeness, policy)
        for policy in policies
        if policy.wire.metadata.deletion_timestamp is None and (closeness := _match(policy, template))
    ]
    return min(selecting, key=lambda pair: _sort_key(*pair))[1] if selecting else None


def _sort_key(closeness: Match, policy: Policy) -> tuple[bool, int, int, str]:
    return not policy.namespace, -policy.wire.spec.priority, -closeness, policy.wire.metadata.name


def _match(policy: Policy, template: Manifest) -> Match:
    if policy.namespace not in {"", template.namespace}:
        return Match.NONE
    return max((_match_selector(each, template) for each in policy.wire.spec.resource_selectors), default=Match.NONE)


def _match_selector(selector: ResourceSelector, template: Manifest) -> Match:
    if (selector.api_version, selector.kind) != (template.api_version, template.kind):
        return Match.NONE
    if selector.namespace not in {"", template.namespace}:
        return Match.NONE
    if selector.name:  # labels beside a name are not looked at
        return Match.NAME if selector.name == template.name else Match.NONE
    if selector.label_selector is None:
        return Match.ALL
    labels = template.body["metadata"].get("labels") or {}
    return Match.LABELS if _labels_match(selector.label_selector, labels) else Match.NONE


def _labels_match(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Say whether *selector* selects an object with *labels*: as it would select a cluster that has them."""
    asked = translate_placement(Placement(cluster_affinity=ClusterAffinity(label_selector=selector)))
    return asked.affinity is not None and matches(asked.affinity, Cluster(ClusterName(""), labels=labels))
