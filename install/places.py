"""Where the kinds that we install live in an API server, and in which order they come and go; knows no objects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Manifest = dict[str, Any]

#: Everything that is put into a control plane by us, and nothing else, carries it.
MANAGED_BY: Final = ("app.kubernetes.io/managed-by", "volcano-global")


@dataclass(frozen=True, slots=True)
class Place:
    """The collection of a kind."""

    api: str
    plural: str
    namespaced: bool = False
    watched: bool = True
    """Whether what is no longer wanted is looked for in it and removed."""

    def collection(self, namespace: str) -> str:
        """Return the path of the collection."""
        return f"{self.api}/namespaces/{namespace}/{self.plural}" if self.namespaced else f"{self.api}/{self.plural}"


_CORE = "/api/v1"
_RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"

#: In the order in which they are applied; they are removed the other way round. Registrations come last of all:
#: from then on we are asked.
PLACES: Final[Mapping[str, Place]] = {
    # Definitions are never removed for not being wanted any more: users' objects would go with them.
    "CustomResourceDefinition": Place("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", watched=False),
    "ServiceAccount": Place(_CORE, "serviceaccounts", namespaced=True),
    "ClusterRole": Place(_RIGHTS, "clusterroles"),
    "ClusterRoleBinding": Place(_RIGHTS, "clusterrolebindings"),
    "Role": Place(_RIGHTS, "roles", namespaced=True),
    "RoleBinding": Place(_RIGHTS, "rolebindings", namespaced=True),
    # Workloads may wait in it, so it is not removed for not being wanted either.
    "Queue": Place("/apis/scheduling.volcano.sh/v1beta1", "queues", watched=False),
    "ResourceInterpreterCustomization": Place("/apis/config.karmada.io/v1alpha1", "resourceinterpretercustomizations"),
    "ClusterOverridePolicy": Place("/apis/policy.karmada.io/v1alpha1", "clusteroverridepolicies"),
    "ClusterPropagationPolicy": Place("/apis/policy.karmada.io/v1alpha1", "clusterpropagationpolicies"),
    "ValidatingAdmissionPolicy": Place(_ADMISSION, "validatingadmissionpolicies"),
    "ValidatingAdmissionPolicyBinding": Place(_ADMISSION, "validatingadmissionpolicybindings"),
    "MutatingWebhookConfiguration": Place(_ADMISSION, "mutatingwebhookconfigurations"),
    "ValidatingWebhookConfiguration": Place(_ADMISSION, "validatingwebhookconfigurations"),
}
REGISTRATIONS: Final = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})


def path_of(manifest: Manifest) -> str:
    """Return the path of an object."""
    metadata = manifest["metadata"]
    place = PLACES[manifest["kind"]]
    return f"{place.collection(metadata.get('namespace', 'default'))}/{metadata['name']}"


def name_of(manifest: Manifest) -> str:
    """Return what the object is called in messages."""
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def is_ours(found: Manifest) -> bool:
    """Say whether an object in the control plane was put there by us."""
    key, value = MANAGED_BY
    labels = found.get("metadata", {}).get("labels") or {}
    return bool(labels.get(key) == value)
