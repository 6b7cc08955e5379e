"""Names, labels and annotations of objects that Karmada creates."""

from typing import Final

POLICY_ID: Final = "propagationpolicy.karmada.io/permanent-id"
POLICY_NAME: Final = "propagationpolicy.karmada.io/name"
POLICY_NAMESPACE: Final = "propagationpolicy.karmada.io/namespace"
CLUSTER_POLICY_ID: Final = "clusterpropagationpolicy.karmada.io/permanent-id"
CLUSTER_POLICY_NAME: Final = "clusterpropagationpolicy.karmada.io/name"
BINDING_ID: Final = "resourcebinding.karmada.io/permanent-id"
BINDING_NAME: Final = "resourcebinding.karmada.io/name"
BINDING_NAMESPACE: Final = "resourcebinding.karmada.io/namespace"
CLUSTER_BINDING_ID: Final = "clusterresourcebinding.karmada.io/permanent-id"
CLUSTER_BINDING_NAME: Final = "clusterresourcebinding.karmada.io/name"
DEPENDED_BY: Final = "resourcebinding.karmada.io/depended-by-"
DEPENDENCIES: Final = "resourcebinding.karmada.io/dependencies"
WORK_ID: Final = "work.karmada.io/permanent-id"
WORK_NAME: Final = "work.karmada.io/name"
WORK_NAMESPACE: Final = "work.karmada.io/namespace"
CONFLICT_RESOLUTION: Final = "work.karmada.io/conflict-resolution"
APPLIED_PLACEMENT: Final = "policy.karmada.io/applied-placement"
MANAGED: Final = "karmada.io/managed"
MANAGED_ANNOTATIONS: Final = "resourcetemplate.karmada.io/managed-annotations"
MANAGED_LABELS: Final = "resourcetemplate.karmada.io/managed-labels"
TEMPLATE_GENERATION: Final = "resourcetemplate.karmada.io/generation"
TEMPLATE_UID: Final = "resourcetemplate.karmada.io/uid"
BINDING_FINALIZER: Final = "karmada.io/binding-controller"
DEPENDENTS_FINALIZER: Final = "karmada.io/binding-dependencies-distributor"
WORK_FINALIZER: Final = "karmada.io/execution-controller"

_EXECUTION: Final = "karmada-es-"
_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
_FNV_OFFSET: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193


def binding_name(kind: str, name: str) -> str:
    """Return the name of a template's binding; templates of equal kind and name share it (facts, §1)."""
    return f"{name.replace(':', '.')}-{kind}".lower()


def work_name(kind: str, namespace: str, name: str) -> str:
    """Return the name of a template's works, which is equal in every cluster."""
    plain = name.replace(":", ".").lower()
    whole = f"{namespace}-{plain}-{kind}" if namespace else f"{plain}-{kind}"
    return f"{plain}-{_digest(whole.lower())}"


def depended_by(namespace: str, name: str) -> str:
    """Return the label of a dependency's binding for a dependent binding."""
    return DEPENDED_BY + _digest(f"{namespace}/{name}")


def permanent_id_label(namespace: str) -> str:
    """Return the label with the permanent id of a binding in *namespace*, or of a cluster-scoped one."""
    return BINDING_ID if namespace else CLUSTER_BINDING_ID


def execution_namespace(cluster: str) -> str:
    """Return the namespace of a cluster's works."""
    return _EXECUTION + cluster


def cluster_of(namespace: str) -> str:
    """Return the cluster of an execution namespace, or an empty string for other namespaces."""
    return namespace.removeprefix(_EXECUTION) if namespace.startswith(_EXECUTION) else ""


def is_reserved(namespace: str) -> bool:
    """Return whether objects in *namespace* are never propagated."""
    return namespace in {"karmada-system", "karmada-cluster"} or namespace.startswith((_EXECUTION, "kube-"))


def _digest(text: str) -> str:
    digest = str(_fnv32a(text.encode()))
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in digest)


def _fnv32a(text: bytes) -> int:
    digest = _FNV_OFFSET
    for byte in text:
        digest = (digest ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return digest
