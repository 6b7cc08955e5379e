"""Kinds of objects used by the stand-in, and their API paths."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from localup.karmada.objects import Key, Object


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind in one API version with its plural."""

    api_version: str
    name: str
    plural: str

    @property
    def path(self) -> str:
        """Return the path of all objects in all namespaces."""
        return f"{self._root}/{self.plural}"

    def collection(self, namespace: str) -> str:
        """Return the path for creating objects in a namespace, empty for cluster-scoped kinds."""
        return f"{self._root}/namespaces/{namespace}/{self.plural}" if namespace else self.path

    def path_of(self, key: Key) -> str:
        """Return the path of an object."""
        return f"{self.collection(key.namespace)}/{key.name}"

    @property
    def _root(self) -> str:
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"


VOLCANO_JOB: Final = Kind("batch.volcano.sh/v1alpha1", "Job", "jobs")
BATCH_JOB: Final = Kind("batch/v1", "Job", "jobs")
DEPLOYMENT: Final = Kind("apps/v1", "Deployment", "deployments")
STATEFUL_SET: Final = Kind("apps/v1", "StatefulSet", "statefulsets")
PRIORITY_CLASS: Final = Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses")
CONFIG_MAP: Final = Kind("v1", "ConfigMap", "configmaps")

#: Kinds of templates that can be propagated, by command line name.
TEMPLATES: Final[Mapping[str, Kind]] = {
    "volcano-job": VOLCANO_JOB,
    "deployment": DEPLOYMENT,
    "statefulset": STATEFUL_SET,
    "batch-job": BATCH_JOB,
    "priority-class": PRIORITY_CLASS,
}

#: Kinds with pods.
WORKLOADS: Final = (VOLCANO_JOB, DEPLOYMENT, STATEFUL_SET, BATCH_JOB)

BINDING: Final = Kind("work.karmada.io/v1alpha2", "ResourceBinding", "resourcebindings")
CLUSTER_BINDING: Final = Kind("work.karmada.io/v1alpha2", "ClusterResourceBinding", "clusterresourcebindings")
WORK: Final = Kind("work.karmada.io/v1alpha1", "Work", "works")
POLICY: Final = Kind("policy.karmada.io/v1alpha1", "PropagationPolicy", "propagationpolicies")
CLUSTER_POLICY: Final = Kind("policy.karmada.io/v1alpha1", "ClusterPropagationPolicy", "clusterpropagationpolicies")
CLUSTER: Final = Kind("cluster.karmada.io/v1alpha1", "Cluster", "clusters")
NAMESPACE: Final = Kind("v1", "Namespace", "namespaces")


def is_a(item: Object, kind: Kind) -> bool:
    """Return whether *item* (an object, reference or selector) is of *kind*."""
    return item.get("apiVersion") == kind.api_version and item.get("kind") == kind.name


def kind_of(item: Object) -> Kind | None:
    """Return the kind of a template, of a dependency, or of a reference to one."""
    return next((kind for kind in (*TEMPLATES.values(), CONFIG_MAP) if is_a(item, kind)), None)
