"""Claims of data on a real API server: workloads are admitted where their data are."""

import asyncio
import json
from typing import Any

from controller.api.keys import DATA_SOURCE_CLAIMS, DATA_SOURCES, RESOURCE_BINDINGS
from tests.rig.harness import Harness, open_harness
from tests.waiting import LIMIT_SECONDS

CONFIGURATION = """\
apiVersion: config.volcano-global.io/v1alpha1
kind: VolcanoGlobalConfiguration
dataSources:
  static:
  - {system: files, name: lake/*, clusters: [m2]}
"""


async def claim(harness: Harness, name: str, data: str, *, version: str, kind: str) -> None:
    reference = {"apiVersion": version, "kind": kind, "name": name, "namespace": harness.karmada.namespace}
    spec = {"system": "files", "dataSourceType": "table", "dataSourceName": data, "workload": reference}
    manifest = {"apiVersion": DATA_SOURCE_CLAIMS.api_version, "kind": "DataSourceClaim", "metadata": {"name": name}}
    await harness.karmada.create(claims(harness), {**manifest, "spec": spec})


def claims(harness: Harness) -> str:
    return DATA_SOURCE_CLAIMS.item_path(harness.karmada.namespace, "").rstrip("/")


async def read(harness: Harness, path: str) -> Any:
    return json.loads(await harness.karmada.api.get(path))


async def test_workloads_follow_the_data_of_their_claims(plane, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(CONFIGURATION)
    async with open_harness(
        plane, tmp_path, "--admission-configuration", file, "--poll-seconds", "0.1", plays=False
    ) as harness:
        karmada, namespace = harness.karmada, harness.karmada.namespace
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
        assert (await read(harness, f"{claims(harness)}/train"))["status"]["phase"] == "Bound"
        await harness.expect_pending_reasons()
        assert harness.bindings()["late"].suspended, "its data are not located"
        file.write_text(CONFIGURATION + "  - {system: files, name: sea/*, clusters: [m3]}\n")
        await harness.admitted("late")
        assert harness.bindings()["late"].clusters == ("m3",)

        # Upstream's example: a Deployment whose binding gets the clusters without the data as exclusions.
        resource = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "app", "namespace": namespace}
        placement = {"clusterAffinity": {}, "replicaScheduling": {"replicaSchedulingType": "Divided"}}
        bound = {
            "apiVersion": RESOURCE_BINDINGS.api_version,
            "kind": "ResourceBinding",
            "metadata": {"name": "app-deployment"},
            "spec": {"resource": {**resource, "uid": "u"}, "placement": placement},
        }
        await karmada.create(karmada.folder("resourcebindings"), bound)
        excluded = None
        async with asyncio.timeout(LIMIT_SECONDS):
            while not excluded:
                await asyncio.sleep(0.1)
                stored = await read(harness, RESOURCE_BINDINGS.item_path(namespace, "app-deployment"))
                excluded = stored["spec"]["placement"]["clusterAffinity"].get("exclude")
        assert excluded == ["m1", "m3"]

        # A running controller would locate the data of the claims again.
        harness.controller.kill()
        await karmada.api.delete(claims(harness))
        for item in (await read(harness, DATA_SOURCES.path))["items"]:
            await karmada.delete(f"{DATA_SOURCES.path}/{item['metadata']['name']}")
