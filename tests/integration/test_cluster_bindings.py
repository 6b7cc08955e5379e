"""ClusterResourceBindings, and bindings of dependencies that another binding propagates (TB1)."""

import json
from typing import Any

from controller.api.keys import (
    ADMISSION_ANNOTATION,
    CLUSTER_RESOURCE_BINDINGS,
    JOBS,
    POLICY_LABELS,
    RESOURCE_BINDINGS,
    Resource,
    binding_name,
)
from controller.kube.errors import ApiError
from tests.benchmarks import seed
from tests.integration.events import wait_for_event
from tests.rig.harness import Harness, open_harness
from tests.rig.objects import new_object
from tests.waiting import poll

FLEETS = Resource("example.com", "v1", "fleets", "Fleet", namespaced=False)
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "fleets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Cluster",
        "names": {"kind": "Fleet", "listKind": "FleetList", "plural": "fleets", "singular": "fleet"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": ANYTHING}}],
    },
}

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "reads-fleets"},
    "rules": [{"apiGroups": ["example.com"], "resources": ["fleets"], "verbs": ["list", "watch"]}],
}
ROLE_BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "reads-fleets"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads-fleets"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "volcano-global-controller"}],
}


async def serve_fleets(harness: Harness) -> None:
    """Create a cluster-scoped kind with a pod template, and allow the controller to read it."""
    for path, manifest in (
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/fleets.example.com", DEFINITION),
        (f"{RBAC}/clusterroles/reads-fleets", ROLE),
        (f"{RBAC}/clusterrolebindings/reads-fleets", ROLE_BINDING),
    ):
        await harness.karmada.api.apply(path, json.dumps(manifest).encode(), field_manager="tests")
    await poll(lambda: harness.karmada.api.get(FLEETS.path), "fleets served", ignoring=(ApiError,))


async def fleet(harness: Harness, name: str, *, replicas: int) -> None:
    """Create a fleet and its binding."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    spec = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
    in_q = {"scheduling.volcano.sh/queue-name": "q"}
    made = await harness.karmada.create(FLEETS.path, new_object(FLEETS, name, annotations=in_q, spec=spec))
    await bind(harness, name, FLEETS, uid=made["metadata"]["uid"])


async def bind(harness: Harness, name: str, of: Resource, *, uid: str, namespace: str = "") -> None:
    """Create the suspended ClusterResourceBinding of an object."""
    bound = seed.binding("", name, uid)
    bound["kind"] = "ClusterResourceBinding"
    labels = {"clusterpropagationpolicy.karmada.io/permanent-id": "id"}
    bound["metadata"] = {"name": binding_name(name, of.kind), "labels": labels}
    bound["spec"]["placement"]["clusterAffinity"] = {}
    bound["spec"]["resource"] |= {"apiVersion": of.api_version, "kind": of.kind, "namespace": namespace}
    await harness.karmada.create(CLUSTER_RESOURCE_BINDINGS.path, bound)


def binding(harness: Harness, name: str) -> dict[str, Any]:
    return harness.history.now["clusterresourcebindings"]["", name]


def is_resumed(harness: Harness, name: str) -> bool:
    return binding(harness, name)["spec"]["suspension"]["scheduling"] is False


async def wait_until_resumed(harness: Harness, name: str) -> dict[str, Any]:
    await harness.history.until(lambda _: is_resumed(harness, name), f"{name} resumed")
    record: dict[str, Any] = json.loads(binding(harness, name)["metadata"]["annotations"][ADMISSION_ANNOTATION])
    return record


async def test_cluster_scoped_workload_is_admitted_and_reported(plane, tmp_path):
    rule = {"apiVersion": FLEETS.api_version, "kind": "Fleet", "finished": {"path": "phase", "values": ["Done"]}}
    async with open_harness(plane, tmp_path, configuration={"integrations": [rule]}, plays=False) as harness:
        await serve_fleets(harness)
        await harness.prepare(cpu="8", capability={"cpu": "4"})
        await harness.karmada.set_summary("m1", kinds=(FLEETS,), cpu="8")
        await harness.controller.start()
        await fleet(harness, "first", replicas=3)
        record = await wait_until_resumed(harness, "first-fleet")
        assert (record["queue"], record["charge"]["cpu"], record["clusters"]) == ("q", "3", ["m1"])
        await fleet(harness, "second", replicas=3)
        event = await wait_for_event(harness, "QueueLimitReached", "Fleet", "second", namespace="default")
        assert event["related"]["kind"] == "ClusterResourceBinding"
        assert not is_resumed(harness, "second-fleet")
        status = {"aggregatedStatus": [{"clusterName": "m1", "applied": True, "status": {"phase": "Done"}}]}
        path = CLUSTER_RESOURCE_BINDINGS.item_path("", "first-fleet")
        await harness.karmada.merge(f"{path}/status", {"status": status})
        await wait_until_resumed(harness, "second-fleet")
        await harness.karmada.api.delete(CLUSTER_RESOURCE_BINDINGS.path)
        await harness.karmada.api.delete(FLEETS.path)


async def test_tb1_job_bound_by_another_kind_of_binding_is_gated(plane, tmp_path):
    """A ClusterResourceBinding is gated; one of a dependency is resumed until a policy selects it."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="8", capability={"cpu": "2"})
        for name in ("wide", "late"):
            uid = await harness.karmada.template(name, "q", cpu=2)
            await bind(harness, name, JOBS, uid=uid, namespace=harness.karmada.namespace)
            if name == "wide":
                assert (await wait_until_resumed(harness, "wide-job"))["charge"]["cpu"] == "2"
        await wait_for_event(harness, "QueueLimitReached", "Job", "late")
        path = CLUSTER_RESOURCE_BINDINGS.item_path("", "late-job")
        await harness.karmada.merge(path, {"spec": {"clusters": [{"name": "m1"}]}})
        await harness.history.until(lambda _: not binding(harness, "late-job")["spec"].get("clusters"), "cleared")
        assert not is_resumed(harness, "late-job")

        harness.ungated.add("dependent")
        uid = await harness.karmada.template("dependent", "q", cpu=5)
        bound = seed.binding(harness.karmada.namespace, "dependent", uid)
        bound["metadata"]["labels"] = {"resourcebinding.karmada.io/depended-by-abc": "abc"}
        bound["spec"]["requiredBy"] = [{"namespace": harness.karmada.namespace, "name": "parent-job"}]
        await harness.karmada.create(harness.karmada.folder(RESOURCE_BINDINGS), bound)
        await harness.until(lambda seen: "dependent" in seen and not seen["dependent"].suspended, "resumed")
        selected = {"metadata": {"labels": {POLICY_LABELS[0]: "id"}}, "spec": {"suspension": {"scheduling": True}}}
        await harness.karmada.merge(harness.karmada.path("dependent"), selected)
        await wait_for_event(harness, "ExceedsQueueLimit", "Job", "dependent")
        await harness.karmada.api.delete(CLUSTER_RESOURCE_BINDINGS.path)
