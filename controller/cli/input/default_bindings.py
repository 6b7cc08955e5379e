"""Creates bindings for templates without one, as Karmada's detector and resource interpreter and the webhook do."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final

import msgspec

from controller.api.bindings import ClusterAffinity, LabelSelector, Placement
from controller.api.jobs import PodSpec, PodTemplate, Template, decode_job
from controller.api.keys import ADMISSION_ANNOTATION, POLICY_LABELS, RESOURCE_BINDINGS, Resource
from controller.api.meta import WatchedObject, decode_watched
from controller.cache.objects import GroupKind, TemplateKey, WorkloadRequests
from controller.cache.translate.bindings import translate_placement
from controller.cache.translate.templates import JobTranslator
from controller.cache.translate.units import format_resources
from controller.cli.input.manifests import Manifest
from controller.engine.state.clusters import Cluster, ClusterName, matches
from controller.engine.state.resources import PODS


class ReplicatedSpec(msgspec.Struct, rename="camel", frozen=True):
    """Pod count and pod template."""

    replicas: int = 1
    parallelism: int = 1
    completions: int | None = None
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)


class Replicated(WatchedObject, frozen=True):
    """A Deployment, StatefulSet or batch Job."""

    spec: ReplicatedSpec = msgspec.field(default_factory=ReplicatedSpec)


class Pod(WatchedObject, frozen=True):
    """A pod without a controller."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)


Spec = Mapping[str, Any]


def _parallel_pods(spec: Spec) -> int:
    parallelism = _number(spec, "parallelism", 1)
    return min(parallelism, _number(spec, "completions", parallelism))


def _number(spec: Spec, name: str, default: int) -> int:
    value = spec.get(name)
    return value if isinstance(value, int) else default


_REPLICAS: Mapping[GroupKind, Callable[[Spec], int]] = MappingProxyType(
    {
        GroupKind("Deployment.apps"): lambda spec: _number(spec, "replicas", 1),
        GroupKind("StatefulSet.apps"): lambda spec: _number(spec, "replicas", 1),
        GroupKind("Job.batch"): _parallel_pods,
    }
)

_POD = GroupKind("Pod.")


def wire_type(kind: GroupKind) -> type[msgspec.Struct]:
    """Return the struct that validates objects of an integration's kind."""
    if kind == _POD:
        return Pod
    return Replicated if kind in _REPLICAS else Template


def replica_requirements(kind: GroupKind, spec: Spec) -> dict[str, Any] | None:
    """Return the replica fields of a binding's spec, or ``None`` for a kind without replicas in Karmada."""
    if kind == _POD:
        return _requirements(1, {"spec": spec})
    replicas = _REPLICAS.get(kind)
    return None if replicas is None else _requirements(replicas(spec), spec.get("template") or {})


def _requirements(replicas: int, pod_template: Spec) -> dict[str, Any]:
    request = {name: amount for name, amount in _pod_requests(pod_template).total.items() if name != PODS}
    return {"replicas": replicas, "replicaRequirements": {"resourceRequest": format_resources(request)}}


def _pod_requests(pod_template: Spec) -> WorkloadRequests:
    """Return the requests of one pod, computed as those of a job with one pod."""
    job = {"spec": {"tasks": [{"replicas": 1, "template": pod_template}]}}
    return JobTranslator().translate(decode_job(msgspec.json.encode(job))).requests or WorkloadRequests({})


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


_POLICY_LABEL_VALUE = "of-the-files"

#: Placement of a template that matches no policy: any one cluster.
ANY_ONE_CLUSTER: Final[Mapping[str, Any]] = {
    "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]
}


def template_key(manifest: Manifest) -> TemplateKey:
    """Return the key by which bindings refer to the template in *manifest*."""
    return TemplateKey(manifest.group_kind, manifest.namespace, manifest.name)


def with_default_bindings(
    templates: Iterable[Manifest], bindings: Sequence[Manifest], policies: Sequence[Policy]
) -> list[Manifest]:
    """Return *bindings*, completed, and a new binding for each of *templates* without one."""
    by_key = {template_key(template): template for template in templates}
    bindings = [_with_template_namespace(binding) for binding in bindings]
    bound = {_template_key_of(binding) for binding in bindings}
    missing = [
        _default_binding(template, matching_policy(template, policies))
        for key, template in by_key.items()
        if key not in bound and not template.body["metadata"].get("deletionTimestamp")
    ]
    return [*(_complete(binding, by_key.get(_template_key_of(binding)), policies) for binding in bindings), *missing]


def _with_template_namespace(binding: Manifest) -> Manifest:
    """Return *binding* with its own namespace as that of its template, if the reference has none."""
    spec = binding.body.get("spec") or {}
    reference = spec.get("resource") or {}
    if reference.get("namespace") or not binding.namespace:
        return binding
    spec = {**spec, "resource": {**reference, "namespace": binding.namespace}}
    return replace(binding, body={**binding.body, "spec": spec})


def _template_key_of(binding: Manifest) -> TemplateKey:
    return template_key(_template_reference(binding))


def _template_reference(binding: Manifest) -> Manifest:
    """Return the object that *binding* refers to, with the fields of the reference only."""
    reference = (binding.body.get("spec") or {}).get("resource") or {}
    api_version, kind, namespace, name = (
        reference.get(field) or "" for field in ("apiVersion", "kind", "namespace", "name")
    )
    metadata = {"namespace": namespace, "name": name}
    return Manifest(binding.location, api_version, kind, namespace, name, {"metadata": metadata})


def _complete(binding: Manifest, template: Manifest | None, policies: Sequence[Policy]) -> Manifest:
    """Return *binding* with a uid, and with the policy label that the detector sets if a policy matches."""
    metadata = dict(binding.body["metadata"])
    labels = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    uid = metadata.get("uid") or recorded_uid(annotations) or _generated_uid(binding)
    metadata |= {"uid": uid, "annotations": _with_record_uid(annotations, uid)}
    if not any(labels.get(label) for label in POLICY_LABELS) and matching_policy(
        template or _template_reference(binding), policies
    ):
        metadata["labels"] = {**labels, POLICY_LABELS[0]: _POLICY_LABEL_VALUE}
    return replace(binding, body={**binding.body, "metadata": metadata})


def _with_record_uid(annotations: Mapping[str, str], uid: str) -> Mapping[str, str]:
    """Return *annotations* with *uid* set in the admission record, if the record has no uid."""
    record = _read_record(annotations)
    if record is None or record.get("uid"):
        return annotations
    return {**annotations, ADMISSION_ANNOTATION: json.dumps({**record, "uid": uid})}


def _default_binding(template: Manifest, policy: Policy | None) -> Manifest:
    kind = template_key(template).kind
    # Karmada's name for the binding would be the same for jobs of two API groups.
    name = f"{template.name}-{kind}".lower()
    metadata = {"name": name, "namespace": template.namespace, "labels": {POLICY_LABELS[0]: _POLICY_LABEL_VALUE}}
    resource = {"apiVersion": template.api_version, "kind": template.kind, "name": template.name}
    if uid := template.body["metadata"].get("uid"):
        resource["uid"] = uid
    spec = {
        "resource": {**resource, "namespace": template.namespace},
        "placement": policy.placement if policy else ANY_ONE_CLUSTER,
        "suspension": {"scheduling": True},
        **(replica_requirements(kind, template.body.get("spec") or {}) or {}),
    }
    binding = Manifest(
        template.location,
        RESOURCE_BINDINGS.api_version,
        RESOURCE_BINDINGS.kind,
        template.namespace,
        name,
        {"metadata": metadata, "spec": spec},
    )
    return _complete(binding, template, ())


def _generated_uid(manifest: Manifest) -> str:
    """Return a unique and reproducible uid for *manifest*."""
    return f"{manifest.kind}/{manifest.namespace}/{manifest.name}"


def recorded_uid(annotations: Mapping[str, str]) -> str:
    """Return the uid in the admission record, or an empty text if there is none."""
    uid = (_read_record(annotations) or {}).get("uid")
    return uid if isinstance(uid, str) else ""


def _read_record(annotations: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the admission record as it is written, or ``None`` if it is missing or not a JSON object."""
    try:
        record = json.loads(annotations.get(ADMISSION_ANNOTATION, "null"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
