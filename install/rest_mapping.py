"""Maps each installed kind to its REST path, in the order of installation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Manifest = dict[str, Any]

#: Label of all objects that the installer applies.
MANAGED_BY: Final = ("app.kubernetes.io/managed-by", "volcano-global")


@dataclass(frozen=True, slots=True)
class RestMapping:
    """Path of the collection of a kind."""

    api: str
    plural: str
    namespaced: bool = False
    is_pruned: bool = True
    """Whether obsolete objects of the kind are deleted."""

    def collection(self, namespace: str) -> str:
        """Return the path of the collection."""
        return f"{self.api}/namespaces/{namespace}/{self.plural}" if self.namespaced else f"{self.api}/{self.plural}"


_CORE = "/api/v1"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"

#: In the order of installation; removal is in reverse order. Webhook configurations come last, since they cause calls
#: of the webhook.
MAPPINGS: Final[Mapping[str, RestMapping]] = {
    # Definitions are not pruned, since users' objects would be deleted with them.
    "CustomResourceDefinition": RestMapping(
        "/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", is_pruned=False
    ),
    "ServiceAccount": RestMapping(_CORE, "serviceaccounts", namespaced=True),
    "ClusterRole": RestMapping(_RBAC, "clusterroles"),
    "ClusterRoleBinding": RestMapping(_RBAC, "clusterrolebindings"),
    "Role": RestMapping(_RBAC, "roles", namespaced=True),
    "RoleBinding": RestMapping(_RBAC, "rolebindings", namespaced=True),
    # Queues are not pruned, since workloads may wait in them.
    "Queue": RestMapping("/apis/scheduling.volcano.sh/v1beta1", "queues", is_pruned=False),
    "ResourceInterpreterCustomization": RestMapping(
        "/apis/config.karmada.io/v1alpha1", "resourceinterpretercustomizations"
    ),
    "ClusterOverridePolicy": RestMapping("/apis/policy.karmada.io/v1alpha1", "clusteroverridepolicies"),
    "ClusterPropagationPolicy": RestMapping("/apis/policy.karmada.io/v1alpha1", "clusterpropagationpolicies"),
    "ValidatingAdmissionPolicy": RestMapping(_ADMISSION, "validatingadmissionpolicies"),
    "ValidatingAdmissionPolicyBinding": RestMapping(_ADMISSION, "validatingadmissionpolicybindings"),
    "MutatingWebhookConfiguration": RestMapping(_ADMISSION, "mutatingwebhookconfigurations"),
    "ValidatingWebhookConfiguration": RestMapping(_ADMISSION, "validatingwebhookconfigurations"),
}
WEBHOOK_CONFIGURATIONS: Final = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})


def path_of(manifest: Manifest) -> str:
    """Return the path of an object."""
    metadata = manifest["metadata"]
    mapping = MAPPINGS[manifest["kind"]]
    return f"{mapping.collection(metadata.get('namespace', 'default'))}/{metadata['name']}"


def name_of(manifest: Manifest) -> str:
    """Return kind and name of an object, for messages."""
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def is_managed(manifest: Manifest) -> bool:
    """Return whether the installer applied the object."""
    key, value = MANAGED_BY
    labels = manifest.get("metadata", {}).get("labels") or {}
    return bool(labels.get(key) == value)
