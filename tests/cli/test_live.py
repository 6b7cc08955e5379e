"""Commands on a real API server print the same as from files, and write nothing."""

import asyncio
import json

import pytest

from controller.api import keys
from controller.api.configuration import (
    VolcanoGlobalConfiguration,
    check_configuration,
    configuration_revision,
    published_data,
)
from controller.cli.input.live import live_snapshot, read_store
from controller.cli.input.snapshot import ActiveConfiguration, ConfigurationSource
from controller.kube.client import Api
from tests.cli.manifests import NOW, binding, cluster, job, priority_class, queue, running, units, write

KINDS = {
    "Queue": keys.QUEUES,
    "Cluster": keys.CLUSTERS,
    "PriorityClass": keys.PRIORITY_CLASSES,
    "Job": keys.JOBS,
    "ResourceBinding": keys.RESOURCE_BINDINGS,
}
NAMESPACE = "default"
DEFAULTS = ActiveConfiguration(VolcanoGlobalConfiguration(), ConfigurationSource.DEFAULTS)


def state():
    """Return documents with running and pending jobs."""
    documents = [
        cluster("east", units(8), used={"cpu": "3", "memory": "3Gi", "pods": "1"}),
        cluster("west", units(4), ready=False),
        queue("a", weight=1, capability=units(6)),
        queue("b", weight=3),
        priority_class("cli-high", 100),
        *running("old", units(2), on="east", queue="a"),
        *(each for name in ("one", "two") for each in suspended(name, units(3), queue="a")),
        *suspended("big", units(20), queue="b", priority="cli-high"),
    ]
    for document in documents:
        if "namespace" in document["metadata"]:
            document["metadata"]["namespace"] = NAMESPACE
        if document["kind"] == "ResourceBinding":
            document["spec"]["resource"]["namespace"] = NAMESPACE
    return documents


def suspended(name, requests, **more):
    return job(name, requests, **more), binding(name, suspended=True)


@pytest.fixture(scope="module")
def server(fresh_control_plane):
    """Return a control plane that contains the documents."""
    plane = fresh_control_plane(controllers=False)
    for document in state():
        kind, meta = KINDS[document["kind"]], document["metadata"]
        path = kind.item_path(meta.get("namespace", ""), meta["name"])
        plane.admin.create(path.rpartition("/")[0], document)
        if document.get("status"):
            plane.admin.merge(f"{path}/status", {"status": document["status"]})
    return plane


@pytest.fixture
def look(run, server):
    """Return a function that runs a command on the control plane with the controller's credentials."""

    def look(*arguments):
        kubeconfig = server.kubeconfig("volcano-global-controller")
        return run(*arguments, "--kubeconfig", str(kubeconfig), "--now", NOW)

    return look


def versions(server):
    """Return the resource version of every object."""
    return {
        (kind.plural, each["metadata"]["name"]): each["metadata"]["resourceVersion"]
        for kind in KINDS.values()
        for each in server.admin.get(kind.path)["items"]
    }


@pytest.mark.parametrize("command", [["plan"], ["queues"], ["pending"], ["clusters"]], ids=lambda each: each[0])
def test_live_report_equals_report_of_files(run, look, tmp_path, command):
    live = look(*command, "-o", "json").answer
    files = run(*command, "-f", write(tmp_path, *state()), "-o", "json", "--now", NOW).answer
    for each in (*live.get("pending", ()), *files.get("pending", ())):
        each.pop("since")
        each.pop("age")
    assert live == files


def test_live_job_is_explained(look):
    ended = look("explain", "job", "big")
    assert ended.code == 0
    assert "ExceedsTotalCapacity: it requests 20 cpu" in ended.out


def test_commands_write_nothing(look, server):
    before = versions(server)
    steps = look("plan", "-o", "json").answer["decisions"]
    assert [step["action"] for step in steps] == ["Admit", "Wait", "Wait"]
    assert versions(server) == before


def test_kind_of_an_integration_is_listed(look, tmp_path):
    path = tmp_path / "configuration.yaml"
    rule = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "queue": "spec.type"}
    head = {"apiVersion": "config.volcano-global.io/v1alpha1", "kind": "VolcanoGlobalConfiguration"}
    path.write_text(json.dumps({**head, "integrations": [rule]}))
    assert look("plan", "--configuration", str(path)).code == 0


def test_kind_that_is_not_served_is_reported(look, tmp_path):
    path = tmp_path / "configuration.yaml"
    rule = {"apiVersion": "apps.example/v1", "kind": "Thing"}
    head = {"apiVersion": "config.volcano-global.io/v1alpha1", "kind": "VolcanoGlobalConfiguration"}
    path.write_text(json.dumps({**head, "integrations": [rule]}))
    ended = look("plan", "--configuration", str(path))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.endswith("the control plane does not serve Thing of apps.example/v1, which `integrations` names\n")
    assert ended.err.startswith("note: configuration revision ")


def test_unreachable_server_is_reported(run, server, tmp_path):
    text = server.kubeconfig("admin").read_text().replace(server.url, "https://127.0.0.1:1")
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    ended = run("plan", "--kubeconfig", str(path))
    assert (ended.code, ended.out) == (1, "")
    assert "cannot connect" in ended.err


def test_missing_permission_is_reported(run, server):
    ended = run("plan", "--kubeconfig", str(server.kubeconfig("tenant")))
    assert (ended.code, ended.out) == (1, "")
    assert "403" in ended.err


def test_live_snapshot_can_be_called_by_programs(server):
    async def observed():
        async with Api.connect(server.kubeconfig("volcano-global-controller")) as api:
            return await live_snapshot(api, DEFAULTS, now=10**12)

    snapshot = asyncio.run(observed())
    assert [each.workload.name for each in snapshot.plan.decisions] == ["one"]


def test_lists_are_read_in_pages(server):
    async def read():
        async with Api.connect(server.kubeconfig("volcano-global-controller")) as api:
            return await read_store(api, VolcanoGlobalConfiguration(), page=2)

    store = asyncio.run(read())
    assert (len(store.jobs), len(store.bindings), store.is_complete) == (4, 4, True)


def test_published_configuration_is_used(look, server):
    tenants = [{"namespaces": [NAMESPACE], "queues": ["b"]}]
    head = {"apiVersion": "config.volcano-global.io/v1alpha1", "kind": "VolcanoGlobalConfiguration"}
    configuration = check_configuration({**head, "tenants": tenants})
    path = keys.CONFIG_MAPS.item_path("karmada-system", keys.PUBLISHED_CONFIGURATION)
    server.admin.create(
        path.rpartition("/")[0],
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": keys.PUBLISHED_CONFIGURATION},
            "data": published_data(configuration),
        },
    )
    ended = look("pending", "-o", "json")
    reasons = {each["name"]: each["reason"] for each in ended.answer["pending"]}
    assert reasons["one"] == "QueueNotAllowed"
    assert ended.answer["configuration"] == {"revision": configuration_revision(configuration), "source": "Published"}
    server.admin.delete(path)
