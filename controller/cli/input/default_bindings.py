"""Creates the suspended bindings that Karmada's detector and the webhook would create for templates without one."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from controller.api.keys import ADMISSION_ANNOTATION, POLICY_LABELS, RESOURCE_BINDINGS
from controller.cache.objects import TemplateKey, group_kind
from controller.cli.input.manifests import Manifest
from controller.cli.policies import Policy, matching_policy
from controller.cli.resource_interpreter import replica_requirements
from controller.engine.state.clusters import ApiKind

_POLICY_LABEL_VALUE = "of-the-files"
#: Placement of a template that matches no policy: any one cluster.
ANY_ONE_CLUSTER: Final[Mapping[str, Any]] = {
    "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]
}


def template_key(manifest: Manifest) -> TemplateKey:
    """Return the key by which bindings refer to the template in *manifest*."""
    kind = group_kind(ApiKind(manifest.api_version, manifest.kind))
    return TemplateKey(kind, manifest.namespace, manifest.name)


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
    spec = {
        "resource": {**resource, "namespace": template.namespace, "uid": template.body["metadata"].get("uid")},
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
