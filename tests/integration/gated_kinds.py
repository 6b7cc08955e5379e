"""Builds objects of kinds other than Volcano Job, their bindings, and the configuration that gates them."""

import json
from typing import Any

from controller.api.keys import CLUSTERS, RESOURCE_BINDINGS
from tests.benchmarks import seed
from tests.rig.harness import Harness

HEAD = "apiVersion: config.volcano-global.io/v1alpha1\nkind: VolcanoGlobalConfiguration\n"
PLURALS = {"Deployment": "deployments", "StatefulSet": "statefulsets", "Job": "jobs", "ReplicaSet": "replicasets"}


def configuration(*kinds: tuple[str, str], **more: Any) -> str:
    """Return the configuration that gates these kinds in addition to Volcano Jobs."""
    rules = [{"apiVersion": version, "kind": kind} for version, kind in kinds]
    return f"{HEAD}integrations: {json.dumps(rules)}\n" + "".join(f"{key}: {json.dumps(more[key])}\n" for key in more)


async def allow(harness: Harness, group: str, plural: str) -> None:
    """Allow the controller to read objects of a kind."""
    name, group_of_roles = f"reads-{plural}", "rbac.authorization.k8s.io"
    rule = {"apiGroups": [group], "resources": [plural], "verbs": ["list", "watch"]}
    reference = {"apiGroup": group_of_roles, "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": group_of_roles, "kind": "User", "name": "volcano-global-controller"}
    for kind, content in (
        ("ClusterRole", {"rules": [rule]}),
        ("ClusterRoleBinding", {"roleRef": reference, "subjects": [subject]}),
    ):
        manifest = {"apiVersion": f"{group_of_roles}/v1", "kind": kind, "metadata": {"name": name}, **content}
        path = f"/apis/{group_of_roles}/v1/{kind.lower()}s/{name}"
        await harness.karmada.api.apply(path, json.dumps(manifest).encode(), field_manager="tests")


async def enable(harness: Harness, cluster: str, *kinds: tuple[str, str]) -> None:
    """Add these kinds to the API enablements of the cluster."""
    served = [
        {"groupVersion": version, "resources": [{"kind": kind, "name": PLURALS[kind]}]} for version, kind in kinds
    ]
    own = {"groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"kind": "Job", "name": "jobs"}]}
    await harness.karmada.merge(f"{CLUSTERS.path}/{cluster}/status", {"status": {"apiEnablements": [own, *served]}})


async def submit(harness: Harness, version: str, kind: str, name: str, **more: Any) -> str:
    """Submit an object with *replicas* pods of *cpu* each, and its binding; return the binding's uid."""
    labels = {"scheduling.volcano.sh/queue-name": more["queue"]} if more.get("queue") else {}
    made = await harness.karmada.create(
        folder(harness, version, kind),
        {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": name, "labels": labels},
            "spec": _spec(kind, name, **more),
        },
    )
    return await bind(harness, version, kind, name, uid=made["metadata"]["uid"], **more)


async def bind(harness: Harness, version: str, kind: str, name: str, **more: Any) -> str:
    """Create the suspended binding of an object; *counted* are the replica requirements that Karmada computed."""
    bound = seed.binding(harness.karmada.namespace, name, more["uid"])
    bound["metadata"]["name"] = f"{name}-{kind.lower()}"
    placement = {"clusterAffinity": {}, **more.get("placement", {})}
    bound["spec"] |= {"placement": placement} | more.get("counted", {"replicas": more.get("replicas", 1)})
    bound["spec"]["resource"] |= {"apiVersion": version, "kind": kind, "uid": more["uid"]}
    if more.get("suspended") is False:
        bound["spec"]["suspension"] = None
    made = await harness.karmada.create(harness.karmada.folder("resourcebindings"), bound)
    return str(made["metadata"]["uid"])


def folder(harness: Harness, version: str, kind: str) -> str:
    """Return the collection path of a kind."""
    root = f"/{'apis' if '/' in version else 'api'}/{version}"
    return f"{root}/namespaces/{harness.karmada.namespace}/{PLURALS[kind]}"


def path(harness: Harness, name: str, kind: str) -> str:
    """Return the path of the binding of an object."""
    return RESOURCE_BINDINGS.item_path(harness.karmada.namespace, f"{name}-{kind.lower()}")


def _spec(kind: str, name: str, **more: Any) -> dict[str, Any]:
    resources = {more.get("under", "requests"): {"cpu": str(more.get("cpu", 1)), "memory": "1Gi"}}
    container = {"name": "main", "image": "busybox", "resources": resources}
    pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    replicas = more.get("replicas", 1)
    if kind == "Job":
        pod["spec"]["restartPolicy"] = "Never"
        return {"parallelism": replicas, "completions": replicas, "template": pod}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pod}
    return {**spec, "serviceName": name} if kind == "StatefulSet" else spec
