"""A tenant with the roles of the chart learns why its jobs are pending, and nothing of other tenants by name."""

import asyncio
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from controller.api.keys import DATA_SOURCE_CLAIMS, DATA_SOURCES
from controller.api.visibility import namespace_path
from controller.cli.__main__ import app
from controller.kube.client import Api
from controller.kube.errors import Forbidden
from localup.controlplane import ControlPlane
from tests.authority import write_certificate
from tests.rig.harness import Harness, open_harness
from tests.waiting import poll

FILES = Path(__file__).parents[2] / "charts" / "volcano-global" / "files"
RBAC = "/apis/rbac.authorization.k8s.io/v1"

#: Commands that ask the control plane, with their arguments; the others read files.
ASK = {
    "plan": [[]],
    "queues": [[], ["secret-queue"], ["--next-cycle"]],
    "pending": [
        [],
        ["-A"],
        ["-n", "secret-namespace"],
        ["-q", "secret-queue"],
        ["-o", "json"],
        ["-o", "csv"],
        ["-o", "name"],
    ],
    "top": [[], ["-n", "secret-namespace"]],
    "clusters": [[]],
    "data": [[]],
    "explain job": [["secret-job"], ["secret-namespace/secret-job"]],
    "explain hyperjob": [["secret-job", "-n", "secret-namespace"]],
    "explain queue": [["secret-queue"], ["shared"]],
}
READ_FILES = {"simulate", "history", "replay", "completion"}


@asynccontextmanager
async def visible(plane, tmp_path, role="volcano-global-view") -> AsyncIterator[tuple[Harness, dict[str, str]]]:
    """Yield a harness whose controller serves the endpoint, and the environment of the tenant's commands."""
    keys = tmp_path / "serving"
    write_certificate(keys)
    flags = ("--visibility-port", "0", "--visibility-certificate-directory", keys)
    async with open_harness(plane, tmp_path, *flags, plays=False) as harness:
        await apply_roles(harness, role)
        await harness.karmada.queue("shared", dequeueStrategy="fifo")
        await harness.karmada.cluster("m1", cpu="2")
        await harness.controller.start()
        await harness.controller.wait_for_log("visibility endpoint started")
        lines = [json.loads(line) for line in harness.controller.part.output.splitlines() if line.startswith("{")]
        port = next(line["port"] for line in lines if line["event"] == "visibility endpoint started")
        environment = {
            "VOLCANO_GLOBAL_SERVER_URL": f"https://127.0.0.1:{port}",
            "VOLCANO_GLOBAL_SERVER_CA": str(keys / "ca.crt"),
        }
        yield harness, environment


async def apply_roles(harness: Harness, role: str) -> None:
    """Apply the roles of the chart and bind the tenant; without a controller manager to the part of `view`."""
    api = harness.karmada.api
    for file in ("readers", "visibility", "data-sources"):
        for manifest in yaml.safe_load_all((FILES / f"{file}.yaml").read_text()):
            plural, space = f"{manifest['kind'].lower()}s", manifest["metadata"].get("namespace")
            folder = f"{RBAC}/namespaces/{space}/{plural}" if space else f"{RBAC}/{plural}"
            body = json.dumps(manifest).encode()
            await api.apply(f"{folder}/{manifest['metadata']['name']}", body, field_manager="test")
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    binding = {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]}
    await harness.karmada.create(f"{RBAC}/namespaces/{harness.karmada.namespace}/rolebindings", binding)


async def ask(plane, environment: dict[str, str], path: str, identity: str = "tenant") -> tuple[int, Any]:
    """Return status and body of a request with the token of *identity*."""
    context = ssl.create_default_context(cafile=environment["VOLCANO_GLOBAL_SERVER_CA"])
    headers = {"Authorization": f"Bearer {plane.token(identity)}"} if identity else {}
    async with aiohttp.ClientSession() as session:
        url = f"{environment['VOLCANO_GLOBAL_SERVER_URL']}{path}"
        async with session.get(url, headers=headers, ssl=context) as answer:
            return answer.status, await answer.json()


async def command(plane, environment: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Return the exit code and the output of a command of the tenant."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "controller.cli", *arguments, "--kubeconfig", str(plane.kubeconfig("tenant"))),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **environment},
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def pending(plane, environment: dict[str, str], namespace: str, count: int) -> list[dict[str, Any]]:
    """Wait until so many workloads of the namespace are pending; return them."""

    async def items() -> list[dict[str, Any]]:
        _, body = await ask(plane, environment, namespace_path(namespace))
        return [item for item in body.get("items", ()) if item["position"]]

    return await poll(
        items,
        f"{count} pending workloads",
        until=lambda listed: sum(bool(item["reason"]) for item in listed) >= count,
    )


async def test_tenant_learns_position_and_reason_without_foreign_names(plane, tmp_path):
    async with visible(plane, tmp_path) as (harness, environment):
        namespace, foreign = harness.karmada.namespace, "secret-namespace"
        async with Api.connect(plane.kubeconfig("admin")) as api:
            await api.apply(
                f"/api/v1/namespaces/{foreign}",
                json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": foreign}}).encode(),
                field_manager="test",
            )
        await harness.karmada.job("runs", "shared", cpu=2)
        await harness.admitted("runs")
        harness.karmada.namespace = foreign
        await harness.karmada.job("secret-job", "shared", cpu=2)
        harness.karmada.namespace = namespace
        await asyncio.sleep(1.1)
        await harness.karmada.job("mine", "shared", cpu=1)
        (item,) = await pending(plane, environment, namespace, 1)
        assert (item["name"], item["position"], item["of"], item["queue"]) == ("mine", 2, 2, "shared")
        assert (item["reason"], "another workload is ahead of it" in item["message"]) == ("BlockedByQueueHead", True)

        code, text = await command(plane, environment, "explain", "job", "mine", "-n", namespace)
        assert (code, "at position 2 of 2" in text, "BlockedByQueueHead" in text) == (0, True, True), text
        code, listed = await command(plane, environment, "explain", "job", "mine", "-n", namespace, "-o", "json")
        assert (code, "secret" in listed, "secret" in text) == (0, False, False), listed
        url, ca = environment["VOLCANO_GLOBAL_SERVER_URL"], environment["VOLCANO_GLOBAL_SERVER_CA"]
        server = ["--server-url", url, "--server-ca", ca]
        # As `pending -o name` prints it.
        name = f"job.batch.volcano.sh/{namespace}/mine"
        code, asked = await command(plane, {}, "explain", "job", name, "-o", "json", *server)
        assert (code, asked.partition("{")[2]) == (0, listed.partition("{")[2]), asked
        code, asked = await command(plane, {}, "pending", "-n", namespace, "-q", "shared", "-w", *server)
        assert (code, "does not apply --queue, --watch" in asked, "mine" in asked) == (0, True, True), asked
        code, table = await command(plane, environment, "pending", "-n", namespace)
        shown = ["mine" in table, "BlockedByQueueHead" in table, "secret" in table]
        assert (code, shown) == (0, [True, True, False]), table
        code, other = await command(plane, environment, "explain", "job", "secret-job", "-n", foreign)
        assert (code != 0, "you may not get workloads" in other) == (True, True), other

        for path, identity, status in (
            (namespace_path(foreign), "tenant", 403),
            (namespace_path(namespace), "", 401),
            ("/metrics", "tenant", 404),
            (namespace_path("a%2Fb"), "tenant", 404),
            (f"{namespace_path(namespace)}?name=%00", "tenant", 400),
        ):
            answered, body = await ask(plane, environment, path, identity)
            assert (answered, body["kind"], body["code"]) == (status, "Status", status), path
        await harness.karmada.queue("secret-queue")
        await expect_no_command_names_others(plane, environment, namespace)
        harness.karmada.namespace = foreign
        await harness.clear()
        harness.karmada.namespace = namespace


async def expect_no_command_names_others(plane, environment: dict[str, str], namespace: str) -> None:
    """Run every command as the tenant, and compare what it prints with the names that the arguments do not contain."""
    groups = [(f"{group.name} ", group.typer_instance) for group in app.registered_groups]
    known = {
        f"{prefix}{registered.name}"
        for prefix, typer in [("", app), *groups]
        for registered in typer.registered_commands
    }
    assert known == {*ASK, *READ_FILES}
    for name, variants in ASK.items():
        for arguments in variants:
            _, text = await command(plane, environment, *name.split(), *arguments)
            hidden = {"secret-job", "secret-namespace", "secret-queue"} - {
                *" ".join(arguments).replace("/", " ").split()
            }
            assert not [word for word in hidden if word in text], (name, arguments, text)
    for query in ("", "?kind=Job&name=mine", "?name=secret-job", "?kind=HyperJob"):
        _, body = await ask(plane, environment, f"{namespace_path(namespace)}{query}")
        assert "secret" not in json.dumps(body), (query, body)


@pytest.mark.parametrize("role", ["view", "edit"])
async def test_stock_role_lets_a_tenant_see_why_it_waits(etcd, tmp_path, role):
    with ControlPlane(etcd, prefix=f"/tenants-{role}") as plane:
        async with visible(plane, tmp_path, role) as (harness, environment):
            namespace = harness.karmada.namespace
            await harness.karmada.queue("others")
            await harness.karmada.job("runs", "others", cpu=2)
            await harness.admitted("runs")
            await harness.karmada.job("mine", "shared", cpu=1)
            (item,) = await pending(plane, environment, namespace, 1)
            assert (item["name"], item["position"], item["reason"]) == ("mine", 1, "InsufficientCapacity")
            async with Api.connect(plane.kubeconfig("tenant")) as tenant:
                jobs = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs"
                job = await poll(
                    lambda: tenant.get(f"{jobs}/mine"),
                    "status of the job",
                    until=lambda raw: "status" in json.loads(raw),
                )
                state = json.loads(job)["status"]["state"]
                assert (state["phase"], state["reason"]) == ("Pending", "InsufficientCapacity")
                # Claims of its namespace, but no DataSource: these name the data of all tenants.
                assert (
                    json.loads(await tenant.get(DATA_SOURCE_CLAIMS.item_path(namespace, "").rstrip("/")))["items"] == []
                )
                for path in (
                    "/apis/work.karmada.io/v1alpha2/resourcebindings",
                    DATA_SOURCES.path,
                    f"{DATA_SOURCES.path}/any",
                    DATA_SOURCE_CLAIMS.path,
                ):
                    with pytest.raises(Forbidden):
                        await tenant.get(path)
            code, text = await command(plane, environment, "explain", "job", "mine", "-n", namespace)
            shown = [
                phrase in text for phrase in ("at position 1 of 1", "InsufficientCapacity", "Queued since", "OTHERS")
            ]
            assert (code, shown) == (0, [True] * 4), text
