"""Claims of data on a real API server, with an Amoro that answers, is slow, fails, lies and changes."""

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


async def hang(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(30)
    return web.Response()


async def redirect(_: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": "/api/iceberg/rest/v1/catalogs/a/namespaces/b/tables/good"})


async def send_much(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        for _ in range(64):
            await response.write(b" " * (1 << 20))
    return response


#: Tables with an answer that locates nothing: the answer, and the reason of the claim's condition.
BAD_ANSWERS: dict[str, tuple[Any, str]] = {
    "slow": (hang, "TimedOut"),
    "down": (503, "Refused"),
    "forbidden": (403, "Refused"),
    "missing": (404, "NotFound"),
    "redirect": (redirect, "Refused"),
    "huge": (send_much, "InvalidAnswer"),
    "html": (b"<html>s3://dc1/</html>", "InvalidAnswer"),
    "cut": (b'{"metadata": {"location": "s3://dc1/', "InvalidAnswer"),
    "nested": (b"[" * 100_000, "InvalidAnswer"),
    "list": ([{"metadata": {"location": "s3://dc1/x"}}], "InvalidAnswer"),
    "number": ({"metadata": {"location": 1}}, "InvalidAnswer"),
    "empty": ({"metadata": {"location": ""}}, "InvalidAnswer"),
    "parent": ({"metadata": {"location": "s3://dc1/../dc2/x"}}, "InvalidAnswer"),
    "elsewhere": ({"metadata": {"location": "s3://dc7/x"}}, "LocationNotMapped"),
}


class Amoro:
    """A catalog that answers with one location for every table without an answer of its own."""

    def __init__(self) -> None:
        self.location = "s3://dc2/db/user"
        self.status = 200
        self.answers: dict[str, Any] = {}
        """Answers by the last part of a table's name: a status, a body, or a function."""
        self.requests: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path)
        answer = self.answers.get(request.path.rpartition("/")[2], {"metadata": {"location": self.location}})
        if callable(answer):
            return await answer(request)
        if isinstance(answer, int):
            return web.Response(status=answer, text="secret details")
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return web.Response(body=body, status=self.status, content_type="application/json")


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
        resource = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": "test-app",
            "namespace": namespace,
            "uid": "u",
        }
        placement = {"clusterAffinity": {}, "replicaScheduling": {"replicaSchedulingType": "Divided"}}
        await karmada.create(
            karmada.folder("resourcebindings"),
            {
                "apiVersion": RESOURCE_BINDINGS.api_version,
                "kind": "ResourceBinding",
                "metadata": {"name": "test-app-deployment"},
                "spec": {"resource": resource, "placement": placement},
            },
        )

        async def excluded() -> Any:
            raw = await karmada.api.get(RESOURCE_BINDINGS.item_path(namespace, "test-app-deployment"))
            return json.loads(raw)["spec"]["placement"]["clusterAffinity"].get("exclude")

        assert await wait_for(harness, "the affinity", excluded) == ["m1", "m3"]

        # A Volcano Job is admitted only where its data are.
        await karmada.job("train", "q", cpu=1)
        await harness.admitted("train")
        binding = harness.history.now["resourcebindings"][namespace, "train-job"]
        assert [each["name"] for each in binding["spec"]["clusters"]] == ["m2"]
        assert amoro.requests.count("/api/iceberg/rest/v1/catalogs/prod/namespaces/db/tables/user") >= 1

        # A job waits while the plugin fails, and starts where the data are when it answers.
        amoro.status = 500
        await claim(harness, "late", "prod.db.late", workload="late")
        await karmada.job("late", "q", cpu=1)

        async def refused() -> bool:
            conditions = (await status("late")).get("conditions", ())
            return any(each["reason"] == "Refused" for each in conditions)

        await wait_for(harness, "the answer in the claim", refused)
        late = harness.history.now["resourcebindings"][namespace, "late-job"]
        assert late["spec"]["suspension"]["scheduling"] is True
        amoro.status, amoro.location = 200, "s3://dc1/db/late"
        await harness.admitted("late")
        late = harness.history.now["resourcebindings"][namespace, "late-job"]
        assert [each["name"] for each in late["spec"]["clusters"]] == ["m1"]
        assert (await status("late"))["phase"] == "Bound"

        # The data of the first job moved as well; it stays where it runs.
        binding = harness.history.now["resourcebindings"][namespace, "train-job"]
        assert [each["name"] for each in binding["spec"]["clusters"]] == ["m2"]


async def test_jobs_wait_while_amoro_lies_and_start_afterwards(plane, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(CONFIGURATION)
    async with (
        open_harness(plane, tmp_path, "--admission-configuration", file, plays=False) as harness,
        serving(harness) as amoro,
    ):
        karmada, namespace = harness.karmada, harness.karmada.namespace
        # The plugin's answer is valid, and names a cluster that Karmada does not have.
        amoro.answers = {name: answer for name, (answer, _) in BAD_ANSWERS.items()}
        amoro.answers["unknown"] = {"metadata": {"location": "s3://dc9/x"}}
        await karmada.queue("q")
        for name in ("m1", "m2"):
            await karmada.cluster(name, cpu="100")
        for name in (*amoro.answers, "good"):
            await claim(harness, name, f"prod.db.{name}", workload=name)
            await karmada.job(name, "q", cpu=1)
        await harness.controller.start()

        async def conditions() -> dict[str, Any]:
            raw = await karmada.api.get(DATA_SOURCE_CLAIMS.item_path(namespace, "").rstrip("/"))
            items = json.loads(raw)["items"]
            found = {each["metadata"]["name"]: (each.get("status") or {}).get("conditions") for each in items}
            return {name: known[0] for name, known in found.items() if known}

        async def answered() -> dict[str, Any] | None:
            found = await conditions()
            expected = {name: reason for name, (_, reason) in BAD_ANSWERS.items()} | {"unknown": "Located"}
            return found if all(found.get(name, {}).get("reason") == expected[name] for name in expected) else None

        found = await wait_for(harness, "the reasons in the claims", answered)
        assert not [each for each in found.values() if "secret" in each["message"] or "s3://" in each["message"]]
        await harness.admitted("good")
        assert [name for name, state in harness.bindings().items() if state.admitted] == ["good"]
        sources = json.loads(await karmada.api.get(DATA_SOURCES.path))["items"]
        located = {each["spec"]["name"]: each["spec"]["locality"]["clusterNames"] for each in sources}
        assert located == {"prod.db.good": ["m2"], "prod.db.unknown": ["gone"]}

        waiting, amoro.answers, amoro.location = list(amoro.answers), {}, "s3://dc1/x"
        await harness.admitted(*waiting)
        placed = {
            name: [
                target["name"]
                for target in harness.history.now["resourcebindings"][namespace, f"{name}-job"]["spec"]["clusters"]
            ]
            for name in waiting
        }
        assert placed == {name: ["m1"] for name in waiting}
