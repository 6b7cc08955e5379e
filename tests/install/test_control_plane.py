"""What the installer keeps, and waits for, in a control plane in memory."""

import asyncio

import pytest

from controller.api.keys import CLUSTER_RESOURCE_BINDINGS, LEASES
from install.checks import missing_prerequisites
from install.objects import InstallError, delete_all, prune
from install.removal import wait_until_released
from tests.controllers.memory import MemoryControlPlane, Traffic, connect
from tests.deterministic import kinds
from tests.deterministic.objects import Kind
from tests.deterministic.reads import Response
from tests.virtual_time import virtual_time

OVERRIDES = Kind("policy.karmada.io", "v1alpha1", "clusteroverridepolicies", "ClusterOverridePolicy", namespaced=False)
BINDINGS = next(kind for kind in kinds.SYSTEM if kind.plural == CLUSTER_RESOURCE_BINDINGS.plural)
DEFINITIONS = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
POLICY = {
    "apiVersion": "policy.karmada.io/v1alpha1",
    "kind": "ClusterOverridePolicy",
    "metadata": {"name": "volcano-global-queues", "labels": {"app.kubernetes.io/managed-by": "volcano-global"}},
}
QUEUE = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "metadata": {"name": "default", "labels": {"app.kubernetes.io/managed-by": "volcano-global"}},
}
LEASE = f"{LEASES.path.rpartition('/')[0]}/namespaces/ml/leases/volcano-global-controller"
HELD = {"holderIdentity": "controller-a", "leaseDurationSeconds": 12, "renewTime": "2026-01-01T00:00:00.000000Z"}


class WithVersion(Traffic):
    def on_request(self, call, route):
        super().on_request(call, route)
        if call.request.path == "/version":
            route.response = Response(200, {"major": "1", "minor": "36"})


class Plane(MemoryControlPlane):
    """A control plane with the installed policy and queue; it *propagates* the queue where that is set."""

    def __init__(self, *, propagates=False):
        known = [OVERRIDES, BINDINGS, kinds.QUEUES, kinds.JOBS, kinds.LEASES, DEFINITIONS]
        super().__init__(known, asyncio.get_running_loop().time)
        self.api = connect(self.server, WithVersion())
        self.send("POST", "/apis/policy.karmada.io/v1alpha1/clusteroverridepolicies", POLICY)
        self.send("POST", "/apis/scheduling.volcano.sh/v1beta1/queues", QUEUE)
        if propagates:
            self.propagate()

    def propagate(self):
        resource = {"apiVersion": QUEUE["apiVersion"], "kind": "Queue", "name": "default"}
        body = {
            "apiVersion": CLUSTER_RESOURCE_BINDINGS.api_version,
            "kind": CLUSTER_RESOURCE_BINDINGS.kind,
            "metadata": {"name": "default-queue"},
            "spec": {"resource": resource},
        }
        self.send("POST", CLUSTER_RESOURCE_BINDINGS.path, body)

    def names(self):
        objects = (*self.server.objects(OVERRIDES), *self.server.objects(kinds.QUEUES))
        return {name for _, name in objects}


@pytest.mark.parametrize("propagated", [True, False])
@virtual_time
async def test_overrides_stay_while_queues_are_propagated(propagated):
    plane = Plane(propagates=propagated)
    await prune(plane.api, [], kinds=["ClusterOverridePolicy"])
    assert ("volcano-global-queues" in plane.names()) == propagated


@pytest.mark.parametrize("propagated", [True, False])
@virtual_time
async def test_queue_in_member_clusters_is_not_deleted(propagated):
    plane = Plane(propagates=propagated)
    await delete_all(plane.api, [POLICY, QUEUE])
    assert plane.names() == ({"volcano-global-queues", "default"} if propagated else set())


async def renew(plane):
    """Renew the Lease every two seconds."""
    for second in range(1000):
        await asyncio.sleep(2)
        plane.send("PATCH", LEASE, {"spec": {"renewTime": f"2026-01-01T01:{second % 60:02}:00.000000Z"}})


@pytest.mark.parametrize(("spec", "seconds"), [(None, 0), ({**HELD, "holderIdentity": ""}, 0), (HELD, 12)])
@virtual_time
async def test_removal_waits_until_no_controller_leads(spec, seconds):
    plane, loop = Plane(), asyncio.get_running_loop()
    if spec is not None:
        body = {"metadata": {"name": "volcano-global-controller"}, "spec": spec}
        plane.send("POST", LEASE.rpartition("/")[0], body)
    begun = loop.time()
    await wait_until_released(plane.api, LEASE, seconds=60)
    assert seconds <= loop.time() - begun < seconds + 2


@virtual_time
async def test_removal_fails_while_a_controller_still_leads():
    plane = Plane()
    plane.send("POST", LEASE.rpartition("/")[0], {"metadata": {"name": "volcano-global-controller"}, "spec": HELD})
    renewing = asyncio.create_task(renew(plane))
    with pytest.raises(InstallError, match=r"still renewed after 60 s by 'controller-a': delete that pod"):
        await wait_until_released(plane.api, LEASE, seconds=60)
    renewing.cancel()


@pytest.mark.parametrize("fields", [{"componentResource": {}}, {"replicaResource": {}}, None])
@virtual_time
async def test_check_names_missing_namespace_and_old_interpreter(fields, monkeypatch):
    plane = Plane()
    monkeypatch.setattr("install.checks.PREREQUISITES", ())
    if fields is not None:
        customizations = {"properties": {"customizations": {"properties": fields}}}
        schema = {"openAPIV3Schema": {"properties": {"spec": customizations}}}
        body = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "resourceinterpretercustomizations.config.karmada.io"},
            "spec": {"versions": [{"name": "v1alpha1", "served": True, "schema": schema}]},
        }
        plane.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    missing = await missing_prerequisites(plane.api, namespace="fleet", interpreter=True)
    assert missing[0] == "namespace fleet does not exist: create it, or set karmada.namespace"
    old = ["this Karmada cannot interpret the components of a job: use Karmada 1.16 or newer,"]
    assert [line.partition(" or set")[0] for line in missing[1:]] == (
        [] if fields and "componentResource" in fields else old
    )
    assert await missing_prerequisites(plane.api, namespace="ml") == []
