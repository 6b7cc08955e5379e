"""Where the kinds that we install live in an API server, and in which order they come and go; knows no objects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Manifest = dict[str, Any]

#: Everything that is put into a control plane by us, and nothing else, carries it.
MANAGED_BY: Final = ("app.kubernetes.io/managed-by", "volcano-global")


@dataclass(frozen=True, slots=True)
class RestMapping:
    """The collection of a kind."""

    api: str
    plural: str
    namespaced: bool = False
    is_pruned: bool = True
    """Whether what is no longer wanted is looked for in it and removed."""

    def collection(self, namespace: str) -> str:
        """Return the path of the collection."""
        return f"{self.api}/namespaces/{namespace}/{self.plural}" if self.namespaced else f"{self.api}/{self.plural}"


_CORE = "/api/v1"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"

#: In the order in which they are applied; they are removed the other way round. Registrations come last of all:
#: from then on we are asked.
MAPPINGS: Final[Mapping[str, RestMapping]] = {
    # Definitions are never removed for not being wanted any more: users' objects would go with them.
    "CustomResourceDefinition": RestMapping(
        "/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", is_pruned=False
    ),
    "ServiceAccount": RestMapping(_CORE, "serviceaccounts", namespaced=True),
    "ClusterRole": RestMapping(_RBAC, "clusterroles"),
    "ClusterRoleBinding": RestMapping(_RBAC, "clusterrolebindings"),
    "Role": RestMapping(_RBAC, "roles", namespaced=True),
    "RoleBinding": RestMapping(_RBAC, "rolebindings", namespaced=True),
    # Workloads may wait in it, so it is not removed for not being wanted either.
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
    place = MAPPINGS[manifest["kind"]]
    return f"{place.collection(metadata.get('namespace', 'default'))}/{metadata['name']}"


def name_of(manifest: Manifest) -> str:
    """Return what the object is called in messages."""
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def is_managed(found: Manifest) -> bool:
    """Say whether an object in the control plane was put there by us."""
    key, value = MANAGED_BY
    labels = found.get("metadata", {}).get("labels") or {}
    return bool(labels.get(key) == value)
