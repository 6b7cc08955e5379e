"""Creates the objects of the demo: namespaces, member clusters, queues, priority classes and policies."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from localup.api import Api
from localup.apply import Manifest, apply, create_namespace, read_manifests, wait_until
from localup.demo.checks import Limits
from localup.demo.scenario import EXAMPLES, NAMESPACES, DemoHyperJob
from localup.karmada.members.summary import ALLOCATABLE
from localup.karmada.members.workloads import amounts

_MEMBERS: Final = Path(__file__).parent / "manifests" / "clusters.yaml"
_JOINING_CLUSTERS: Final = _MEMBERS.with_name("sites.yaml")
_QUEUES: Final = EXAMPLES / "queues.yaml"
_CLASSES: Final = EXAMPLES / "priority-classes.yaml"
_POLICY: Final = EXAMPLES / "policy.yaml"

#: With a real Karmada an API server is started for each member first.
_JOIN_SECONDS: Final = 120

CLUSTERS_PATH: Final = "/apis/cluster.karmada.io/v1alpha1/clusters"
QUEUES_PATH: Final = "/apis/scheduling.volcano.sh/v1beta1/queues"
CLOSED: Final = "archive"


def create_objects(admin: Api) -> None:
    """Create everything that precedes the first job, and return when all clusters report a resource summary."""
    for namespace in NAMESPACES:
        create_namespace(admin, namespace)
    apply(admin, [*read_manifests(_MEMBERS, _QUEUES, _CLASSES), *_policies()])
    for queue in queues():
        state = "Closed" if queue == CLOSED else "Open"
        admin.merge(f"{QUEUES_PATH}/{queue}/status", {"status": {"state": state}})
    wait_until(lambda: _all_have_summaries(admin), "clusters with a resource summary", seconds=_JOIN_SECONDS)


def queues() -> list[str]:
    """Return the names of all queues in file order."""
    return [manifest["metadata"]["name"] for manifest in read_manifests(_QUEUES)]


def limits() -> Limits:
    """Return capabilities of queues and allocatable resources of clusters from their manifests."""
    return Limits(
        queues={
            manifest["metadata"]["name"]: amounts(manifest["spec"].get("capability"))
            for manifest in read_manifests(_QUEUES)
        },
        clusters={
            manifest["metadata"]["name"]: amounts(json.loads(manifest["metadata"]["annotations"][ALLOCATABLE]))
            for manifest in read_manifests(_MEMBERS, _JOINING_CLUSTERS)
        },
    )


def submit(tenant: Api, items: Iterable[DemoHyperJob]) -> None:
    """Submit jobs and HyperJobs as the tenant."""
    for item in items:
        tenant.create(item.path, item.manifest)


def write_configuration(folder: Path, *, reclaim: bool) -> Path:
    """Write the controller's VolcanoGlobalConfiguration into *folder* and return its path."""
    path = folder / "admission.yaml"
    rules = {"reclaim": {"enabled": True, "minRuntime": "0s", "gracePeriod": "0s"}} if reclaim else {}
    head = {"apiVersion": "config.volcano-global.io/v1alpha1", "kind": "VolcanoGlobalConfiguration"}
    path.write_text(json.dumps({**head, **rules}))
    return path


def join_clusters(admin: Api, clusters: Iterable[str]) -> None:
    """Create member clusters; they report their summary asynchronously."""
    names = set(clusters)
    apply(admin, [manifest for manifest in read_manifests(_JOINING_CLUSTERS) if manifest["metadata"]["name"] in names])


def _policies() -> Iterator[Manifest]:
    """Yield the propagation policy for each namespace."""
    for policy in read_manifests(_POLICY):
        for namespace in NAMESPACES:
            yield {**policy, "metadata": {**policy["metadata"], "namespace": namespace}}


def _all_have_summaries(admin: Api) -> bool:
    return all(map(has_summary, admin.get(CLUSTERS_PATH)["items"]))


def has_summary(cluster: Manifest) -> bool:
    """Return whether a member cluster reports a resource summary."""
    return "resourceSummary" in cluster.get("status", {})
