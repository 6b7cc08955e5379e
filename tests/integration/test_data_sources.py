"""Claims of data on a real API server: workloads are admitted where their data are."""

from typing import Any

from controller.api.keys import DATA_SOURCE_CLAIMS, DATA_SOURCES, RESOURCE_BINDINGS
from tests.rig.harness import Harness, open_harness
from tests.rig.objects import new_object

LAKE = {"system": "files", "name": "lake/*", "clusters": ["m2"]}
SEA = {"system": "files", "name": "sea/*", "clusters": ["m3"]}


async def claim(harness: Harness, name: str, data: str, *, version: str, kind: str) -> None:
    reference = {"apiVersion": version, "kind": kind, "name": name, "namespace": harness.karmada.namespace}
    spec = {"system": "files", "dataSourceType": "table", "dataSourceName": data, "workload": reference}
    folder = harness.karmada.folder(DATA_SOURCE_CLAIMS)
    await harness.karmada.create(folder, new_object(DATA_SOURCE_CLAIMS, name, spec=spec))


async def test_workloads_follow_the_data_of_their_claims(plane, tmp_path):
    lake = {"dataSources": {"static": [LAKE]}}
    async with open_harness(plane, tmp_path, configuration=lake, plays=False) as harness:
        karmada, claims = harness.karmada, harness.karmada.folder(DATA_SOURCE_CLAIMS)
        await karmada.queue("q")
        for name in ("m1", "m2", "m3"):
            await karmada.cluster(name, cpu="8")
        await claim(harness, "train", "lake/a", version="batch.volcano.sh/v1alpha1", kind="Job")
        await claim(harness, "late", "sea/b", version="batch.volcano.sh/v1alpha1", kind="Job")
        await claim(harness, "app", "lake/a", version="apps/v1", kind="Deployment")
        await harness.controller.start()

        await karmada.job("train", "q", cpu=1)
        await karmada.job("late", "q", cpu=1)
        await harness.admitted("train")
        assert harness.bindings()["train"].clusters == ("m2",)
        assert (await karmada.read(f"{claims}/train"))["status"]["phase"] == "Bound"
        await harness.expect_pending_reasons()
        assert harness.bindings()["late"].suspended, "its data are not located"
        harness.configure(dataSources={"static": [LAKE, SEA]})
        await harness.admitted("late")
        assert harness.bindings()["late"].clusters == ("m3",)

        # Upstream's example: a Deployment whose binding gets the clusters without the data as exclusions.
        resource = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "app", "namespace": karmada.namespace}
        placement = {"clusterAffinity": {}, "replicaScheduling": {"replicaSchedulingType": "Divided"}}
        spec = {"resource": {**resource, "uid": "u"}, "placement": placement}
        bound = new_object(RESOURCE_BINDINGS, "app-deployment", spec=spec)
        await karmada.create(karmada.folder(RESOURCE_BINDINGS), bound)

        def excluded() -> Any:
            return karmada.stored_bindings()["app-deployment"]["spec"]["placement"]["clusterAffinity"].get("exclude")

        await harness.until(lambda _: excluded() is not None, "clusters excluded")
        assert excluded() == ["m1", "m3"]

        # A running controller would locate the data of the claims again.
        harness.controller.kill()
        await karmada.api.delete(claims)
        for item in (await karmada.read(DATA_SOURCES.path))["items"]:
            await karmada.delete(f"{DATA_SOURCES.path}/{item['metadata']['name']}")
