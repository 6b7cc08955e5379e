"""The kinds of objects that Karmada's part deals with, and where the API server has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from localup.karmada.objects import Key, Object


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind in one version, and the name of its collection."""

    api_version: str
    name: str
    plural: str

    @property
    def path(self) -> str:
        """Return where all objects of the kind are listed, whatever their namespace."""
        return f"{self._root}/{self.plural}"

    def collection(self, namespace: str) -> str:
        """Return where objects of one namespace are created; it is empty for kinds that have none."""
        return f"{self._root}/namespaces/{namespace}/{self.plural}" if namespace else self.path

    def path_of(self, key: Key) -> str:
        """Return where one object is."""
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

#: The kinds of templates that can be propagated, by the name they have on the command line.
TEMPLATES: Final[Mapping[str, Kind]] = {
    "volcano-job": VOLCANO_JOB,
    "deployment": DEPLOYMENT,
    "statefulset": STATEFUL_SET,
    "batch-job": BATCH_JOB,
    "priority-class": PRIORITY_CLASS,
}

#: What runs somewhere; the others are only there.
WORKLOADS: Final = (VOLCANO_JOB, DEPLOYMENT, STATEFUL_SET, BATCH_JOB)

BINDING: Final = Kind("work.karmada.io/v1alpha2", "ResourceBinding", "resourcebindings")
CLUSTER_BINDING: Final = Kind("work.karmada.io/v1alpha2", "ClusterResourceBinding", "clusterresourcebindings")
WORK: Final = Kind("work.karmada.io/v1alpha1", "Work", "works")
POLICY: Final = Kind("policy.karmada.io/v1alpha1", "PropagationPolicy", "propagationpolicies")
CLUSTER_POLICY: Final = Kind("policy.karmada.io/v1alpha1", "ClusterPropagationPolicy", "clusterpropagationpolicies")
CLUSTER: Final = Kind("cluster.karmada.io/v1alpha1", "Cluster", "clusters")
NAMESPACE: Final = Kind("v1", "Namespace", "namespaces")


def is_a(item: Object, kind: Kind) -> bool:
    """Say whether *item* (an object, or a reference or selector that names a kind) is of *kind*."""
    return item.get("apiVersion") == kind.api_version and item.get("kind") == kind.name


def kind_of(item: Object) -> Kind | None:
    """Return the kind of a template or of what one needs, or of a reference to one."""
    return next((kind for kind in (*TEMPLATES.values(), CONFIG_MAP) if is_a(item, kind)), None)
