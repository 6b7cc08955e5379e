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
from tests.cli.manifests import (
    NOW,
    binding,
    cluster,
    configuration,
    job,
    priority_class,
    queue,
    units,
    write,
)

KINDS = {
    "Queue": keys.QUEUES,
    "Cluster": keys.CLUSTERS,
    "PriorityClass": keys.PRIORITY_CLASSES,
    "Job": keys.JOBS,
    "ResourceBinding": keys.RESOURCE_BINDINGS,
}
NAMESPACE = "default"
CONTROLLER = "volcano-global-controller"


def pending(name, requests, **more):
    return job(name, requests, namespace=NAMESPACE, **more), binding(name, suspended=True, namespace=NAMESPACE)


def state():
    """Return documents with running and pending jobs."""
    documents = [
        cluster("east", units(8), used={"cpu": "3", "memory": "3Gi", "pods": "1"}),
        cluster("west", units(4), ready=False),
        queue("a", weight=1, capability=units(6)),
        queue("b", weight=3),
        priority_class("cli-high", 100),
        job("old", units(2), queue="a", namespace=NAMESPACE),
        binding("old", clusters=["east"], phase="Running", namespace=NAMESPACE),
    ]
    waiting = [pending("one", units(3), queue="a"), pending("two", units(3), queue="a")]
    waiting.append(pending("big", units(20), queue="b", priority="cli-high"))
    return [*documents, *(manifest for pair in waiting for manifest in pair)]


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

    def look(*arguments, user=CONTROLLER):
        return run(*arguments, "--kubeconfig", str(server.kubeconfig(user)), "--now", NOW)

    return look


def versions(server):
    """Return the resource version of every object."""
    return {
        (kind.plural, item["metadata"]["name"]): item["metadata"]["resourceVersion"]
        for kind in KINDS.values()
        for item in server.admin.get(kind.path)["items"]
    }


def test_live_reports_equal_those_of_files_and_write_nothing(run, look, server, tmp_path):
    before, path = versions(server), write(tmp_path, *state())
    for command in ("plan", "queues", "pending", "clusters"):
        live = look(command, "-o", "json").answer
        files = run(command, "-f", path, "-o", "json", "--now", NOW).answer
        for workload in (*live.get("pending", ()), *files.get("pending", ())):
            workload.pop("since")
            workload.pop("age")
        assert live == files
    assert "ExceedsTotalCapacity: it requests 20 cpu" in look("explain", "job", "big").out
    assert before
    assert versions(server) == before


def test_kinds_of_integrations_are_listed(look, tmp_path):
    path = tmp_path / "configuration.yaml"
    rule = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "queue": "spec.type"}
    path.write_text(json.dumps(configuration(integrations=[rule])))
    assert look("plan", "--configuration", str(path)).code == 0
    path.write_text(json.dumps(configuration(integrations=[{"apiVersion": "apps.example/v1", "kind": "Thing"}])))
    ended = look("plan", "--configuration", str(path))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.endswith("the control plane does not serve Thing of apps.example/v1, which `integrations` names\n")
    assert ended.err.startswith("note: configuration revision ")


def test_unreachable_server_and_missing_permission_are_reported(run, look, server, tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(server.kubeconfig("admin").read_text().replace(server.url, "https://127.0.0.1:1"))
    unreachable, forbidden = run("plan", "--kubeconfig", str(path)), look("plan", user="tenant")
    assert (unreachable.code, unreachable.out, forbidden.code, forbidden.out) == (1, "", 1, "")
    assert "cannot connect" in unreachable.err
    assert "403" in forbidden.err


def test_programs_can_read_the_state_in_pages(server):
    async def read():
        defaults = VolcanoGlobalConfiguration()
        async with Api.connect(server.kubeconfig(CONTROLLER)) as api:
            snapshot = await live_snapshot(api, ActiveConfiguration(defaults, ConfigurationSource.DEFAULTS), now=10**12)
            return snapshot, await read_store(api, defaults, page=2)

    snapshot, store = asyncio.run(read())
    assert [decision.workload.name for decision in snapshot.plan.decisions] == ["one"]
    assert (len(store.jobs), len(store.bindings), store.is_complete) == (4, 4, True)


def test_published_configuration_is_used(look, server):
    published = check_configuration(configuration(tenants=[{"namespaces": [NAMESPACE], "queues": ["b"]}]))
    path = keys.CONFIG_MAPS.item_path("karmada-system", keys.PUBLISHED_CONFIGURATION)
    metadata = {"name": keys.PUBLISHED_CONFIGURATION}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": published_data(published)}
    server.admin.create(path.rpartition("/")[0], document)
    answer = look("pending", "-o", "json").answer
    server.admin.delete(path)
    assert {workload["name"]: workload["reason"] for workload in answer["pending"]}["one"] == "QueueNotAllowed"
    assert answer["configuration"] == {"revision": configuration_revision(published), "source": "Published"}
