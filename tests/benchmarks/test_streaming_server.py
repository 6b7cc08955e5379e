import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import msgspec
import pytest

from controller.api.keys import CLUSTERS, HYPERJOB_NAME_LABEL, JOBS, PRIORITY_CLASSES, QUEUES, RESOURCE_BINDINGS
from controller.cache.store import Store
from controller.kube.client import Api
from tests.benchmarks.generated_objects import VERSION, GeneratedState
from tests.benchmarks.states import NOW, Size, workloads
from tests.benchmarks.streaming_server import serving
from tests.cache.fake_event_handler import FakeEventHandler
from tests.waiting import LIMIT_SECONDS
from tests.watching import Watcher, watching

SIZE = Size(600, (2, 3, 2), clusters=7, further_resources=4)


@pytest.fixture
def state():
    return GeneratedState(SIZE)


def clusters_of(workload):
    return [charge.cluster for charge in workload.admission.cluster_charges] if workload.admission else None


def test_generated_objects_are_the_engines_workloads(state):
    store, received = Store(), FakeEventHandler()
    for manifest in (manifest for manifest in state.manifests() if manifest["kind"] == "PriorityClass"):
        manifest["metadata"]["resourceVersion"] = "1"
        store.priority_classes.upsert(store.priority_classes.decode(msgspec.json.encode(manifest)))
    for index in range(state.jobs.count):
        store.jobs.upsert(store.jobs.decode(state.jobs.make(index)))
        store.bindings.upsert(store.bindings.decode(state.bindings.make(index)))
    while not store.sync_to(received, NOW):
        pass
    by_name = {workload.name: workload for workload in received.workloads.values()}
    assert not any(store.conditions.values())
    for expected in workloads(SIZE):
        workload = by_name.pop(expected.name)
        assert (workload.namespace, workload.queue, workload.priority, workload.state) == (
            expected.namespace,
            expected.queue,
            expected.priority,
            expected.state,
        )
        present = {name: amount for name, amount in expected.requirements.requests.items() if amount}
        assert workload.requirements.requests == present
        assert workload.requirements.placement.spread == expected.requirements.placement.spread
        assert clusters_of(workload) == clusters_of(expected)
    assert not by_name


@pytest.mark.parametrize("name", ["train-3", "train-3-job-job", "train--job", "train-99999-job", "train-03-job", "x"])
def test_other_names_have_no_index(state, name):
    assert state.bindings.index("team-3", "train-3-job") == 3
    assert state.bindings.index("team-3", name) is None


class Names(Watcher):
    """Has the last version of each object."""

    def __init__(self):
        self.objects = {}

    def upsert(self, obj):
        self.objects[obj["metadata"]["name"]] = obj


@asynccontextmanager
async def mirrored(api, *kinds):
    """Yield a copy of each collection, listed in small pages and watched."""
    sinks = [Names() for _ in kinds]
    async with AsyncExitStack() as stack, asyncio.timeout(LIMIT_SECONDS):
        for kind, sink in zip(kinds, sinks, strict=True):
            await stack.enter_async_context(watching(api, kind.path, sink, decode=msgspec.json.decode, page=50))
        yield [sink.objects for sink in sinks]


async def until(condition):
    async with asyncio.timeout(LIMIT_SECONDS):
        while not condition():  # noqa: ASYNC110 -- a watch has no event for it
            await asyncio.sleep(0.01)


async def test_generated_collections_are_listed_in_pages(state, tmp_path):
    kinds = JOBS, RESOURCE_BINDINGS, QUEUES, CLUSTERS, PRIORITY_CLASSES
    async with (
        serving(state) as server,
        Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api,
        mirrored(api, *kinds) as collections,
    ):
        assert [len(objects) for objects in collections] == [660, 660, 20, 7, 3]


async def test_lists_with_a_selector_contain_no_generated_objects(state, tmp_path):
    async with serving(state) as server, Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api:
        page = await api.list_page(JOBS.path, {"labelSelector": HYPERJOB_NAME_LABEL}, limit=5)
    assert (page.items, page.metadata.remaining) == ([], 0)


async def test_written_objects_are_watched_and_listed(state, tmp_path):
    async with serving(state) as server, Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api:
        async with mirrored(api, RESOURCE_BINDINGS, CLUSTERS) as (bindings, clusters):
            path = RESOURCE_BINDINGS.item_path("team-49", "train-649-job")
            patch = [{"op": "replace", "path": "/spec/suspension/scheduling", "value": False}]
            written = msgspec.json.decode(await api.patch(path, msgspec.json.encode(patch)))
            before = int(clusters["m1"]["status"]["resourceSummary"]["allocatable"]["cpu"])
            server.add_capacity(1, 5)
            server.finish(2)
            await until(lambda: clusters["m1"]["status"]["resourceSummary"]["allocatable"]["cpu"] == str(before + 5))
            await until(lambda: bindings["train-649-job"] == written)
            await until(lambda: bindings["train-2-job"]["metadata"]["resourceVersion"] != str(VERSION))
        (report,) = bindings["train-2-job"]["status"]["aggregatedStatus"]
        assert report["status"]["state"]["phase"] == "Completed"
        page = await api.list_page(RESOURCE_BINDINGS.path, limit=655)
        assert (msgspec.json.decode(page.items[649]), page.metadata.remaining) == (written, 5)
        assert msgspec.json.decode(await api.get(path)) == written


async def test_client_that_leaves_ends_its_watch(state):
    async with serving(state) as server, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{server.port}{CLUSTERS.path}?watch=true&resourceVersion={server.server.version}"
        async with session.get(url):
            assert len(server.server.watches) == 1

        def is_ended():
            server.add_capacity(0)
            return not server.server.watches

        await until(is_ended)
