"""Claims of data on a real API server, with an Amoro that answers, fails and changes."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from controller.api.keys import DATA_PLUGINS_NAME, DATA_SOURCE_CLAIMS, DATA_SOURCES, RESOURCE_BINDINGS
from controller.kube.errors import Conflict
from tests.rig.harness import Harness, open_harness
from tests.waiting import LIMIT_SECONDS

CONFIGURATION = (
    "apiVersion: config.volcano-global.io/v1alpha1\nkind: VolcanoGlobalConfiguration\ndataSources: {timeToLive: 5s}\n"
)


class Amoro:
    """A catalog that answers with one location for every table."""

    def __init__(self) -> None:
        self.location = "s3://dc2/db/user"
        self.status = 200
        self.requests: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path)
        body = json.dumps({"metadata": {"location": self.location}})
        return web.Response(text=body, status=self.status, content_type="application/json")


@contextlib.asynccontextmanager
async def serving(harness: Harness) -> AsyncIterator[Amoro]:
    """Serve Amoro, and configure its plugin as upstream's manifest does."""
    amoro, application = Amoro(), web.Application()
    application.router.add_get("/{path:.*}", amoro.handle)
    server = TestServer(application)
    await server.start_server()
    settings = {
        "system": "amoro",
        "endpoint": {"url": f"http://{server.host}", "port": server.port},
        "locationMapping": {"s3://dc1/": ["m1"], "s3://dc2/": ["m2"], "s3://dc9/": ["gone"]},
        "retryConfig": {"maxRetries": 1, "initialBackoff": "10ms", "timeout": "1s"},
    }
    with contextlib.suppress(Conflict):
        await harness.karmada.create("/api/v1/namespaces", {"metadata": {"name": "volcano-global"}})
    path = "/api/v1/namespaces/volcano-global/configmaps"
    await harness.karmada.delete(f"{path}/{DATA_PLUGINS_NAME}")
    await harness.karmada.create(
        path, {"metadata": {"name": DATA_PLUGINS_NAME}, "data": {"amoro": json.dumps(settings)}}
    )
    try:
        yield amoro
    finally:
        await server.close()
        # A running controller would locate the data of the claims again.
        for controller in harness.controllers:
            controller.kill()
        await harness.karmada.api.delete(DATA_SOURCE_CLAIMS.item_path(harness.karmada.namespace, "").rstrip("/"))
        for item in json.loads(await harness.karmada.api.get(DATA_SOURCES.path))["items"]:
            await harness.karmada.delete(f"{DATA_SOURCES.path}/{item['metadata']['name']}")


async def claim(harness: Harness, name: str, data: str, *, workload: str, kind: str = "Job") -> None:
    api = "apps/v1" if kind == "Deployment" else "batch.volcano.sh/v1alpha1"
    reference = {"apiVersion": api, "kind": kind, "name": workload, "namespace": harness.karmada.namespace}
    body = {
        "apiVersion": DATA_SOURCE_CLAIMS.api_version,
        "kind": "DataSourceClaim",
        "metadata": {"name": name},
        "spec": {"system": "amoro", "dataSourceType": "table", "dataSourceName": data, "workload": reference},
    }
    await harness.karmada.create(DATA_SOURCE_CLAIMS.item_path(harness.karmada.namespace, "").rstrip("/"), body)


async def wait_for(harness: Harness, what: str, question: Any) -> Any:
    """Wait until *question* returns something true, and return it."""
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not (answer := await question()):  # noqa: ASYNC110 -- the API server is asked
                await asyncio.sleep(0.1)
            return answer
    except TimeoutError as error:
        raise AssertionError(f"{what}; {harness.controller.part.output[-3000:]}") from error


async def test_workloads_follow_the_data_of_their_claims(plane, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(CONFIGURATION)
    async with (
        open_harness(plane, tmp_path, "--admission-configuration", file, plays=False) as harness,
        serving(harness) as amoro,
    ):
        karmada, namespace = harness.karmada, harness.karmada.namespace

        async def status(name: str) -> Any:
            raw = await karmada.api.get(DATA_SOURCE_CLAIMS.item_path(namespace, name))
            return json.loads(raw).get("status") or {}

        await karmada.queue("q")
        for name in ("m1", "m2", "m3"):
            await karmada.cluster(name, cpu="8")
        await claim(harness, "train", "prod.db.user", workload="train")
        await claim(harness, "app", "prod.db.user", workload="test-app", kind="Deployment")
        await harness.controller.start()

        # Upstream's example: a Deployment whose binding gets the clusters without the data as exclusions.
        resource = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "test-app", "namespace": namespace}
        placement = {"clusterAffinity": {}, "replicaScheduling": {"replicaSchedulingType": "Divided"}}
        bound = {
            "apiVersion": RESOURCE_BINDINGS.api_version,
            "kind": "ResourceBinding",
            "metadata": {"name": "test-app-deployment"},
            "spec": {"resource": {**resource, "uid": "u"}, "placement": placement},
        }
        await karmada.create(karmada.folder("resourcebindings"), bound)

        async def excluded() -> Any:
            raw = await karmada.api.get(RESOURCE_BINDINGS.item_path(namespace, "test-app-deployment"))
            return json.loads(raw)["spec"]["placement"]["clusterAffinity"].get("exclude")

        assert await wait_for(harness, "the affinity", excluded) == ["m1", "m3"]

        # A Volcano Job is admitted only where its data are.
        await karmada.job("train", "q", cpu=1)
        await harness.admitted("train")
        assert harness.bindings()["train"].clusters == ("m2",)
        assert amoro.requests.count("/api/iceberg/rest/v1/catalogs/prod/namespaces/db/tables/user") >= 1

        # A job waits while the plugin fails, and starts where the data are when it answers.
        amoro.status, amoro.location = 500, "s3://dc1/db/late"
        await claim(harness, "late", "prod.db.late", workload="late")
        await karmada.job("late", "q", cpu=1)

        async def refused() -> bool:
            conditions = (await status("late")).get("conditions", ())
            return any(each["reason"] == "Refused" for each in conditions)

        await wait_for(harness, "the answer in the claim", refused)
        assert harness.bindings()["late"].suspended
        amoro.status = 200
        await harness.admitted("late")
        assert harness.bindings()["late"].clusters == ("m1",)
        assert (await status("late"))["phase"] == "Bound"
