"""Informers of configured kinds, as the configuration changes."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from controller.api.configuration import VolcanoGlobalConfiguration
from controller.cache.dynamic_informers import DynamicInformers, build_informers, relist_configured
from controller.cache.store import Store
from controller.engine.state.clusters import ApiKind
from controller.kube.client import Api
from controller.kube.informer import Informer, WatchOptions, audited_informer
from tests.scripted_server import answering, listing, refusing, scripted_server, watching
from tests.waiting import LIMIT_SECONDS, poll

DEPLOYMENT, CRON_JOB = ApiKind("apps/v1", "Deployment"), ApiKind("batch/v1", "CronJob")
SERVED = {"resources": [{"name": "deployments", "kind": "Deployment"}]}
GROUP_PATH, PATH = "/apis/apps/v1", "/apis/apps/v1/deployments"


async def test_kind_added_during_discovery_is_waited_for(tmp_path):
    """Otherwise its workloads would be evaluated before their templates are known."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(request):
        asked.set()
        await go_on.wait()
        return await answering(200, SERVED)(request)

    async def after_all(request):
        assert not kinds.synced.is_set()
        return await answering(200, {"resources": []})(request)

    async with scripted_server() as server:
        server.says("GET", GROUP_PATH, slowly)
        server.says("GET", PATH, listing(version=1))
        server.says("GET", "/apis/batch/v1", after_all)
        async with Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api, asyncio.TaskGroup() as group:
            informers: dict[str, Informer[Any]] = {}
            kinds = DynamicInformers(api, Store(VolcanoGlobalConfiguration()), informers, options=WatchOptions())
            kinds.set_kinds([DEPLOYMENT])
            running = group.create_task(kinds.run())
            await asked.wait()
            kinds.set_kinds([DEPLOYMENT, CRON_JOB])
            go_on.set()
            async with asyncio.timeout(LIMIT_SECONDS):
                await kinds.synced.wait()
            assert "/apis/batch/v1" in [path for _, path, _ in server.requests]
            running.cancel()


@asynccontextmanager
async def watching_deployments(tmp_path, watch, *, interval_seconds):
    """Yield a server that serves Deployments, and their informers; watches get the answer *watch*."""
    async with scripted_server() as server:
        server.says("GET", GROUP_PATH, answering(200, SERVED))
        server.says("GET", PATH, listing(version=1))
        server.says("WATCH", PATH, watch)
        async with Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api, asyncio.TaskGroup() as group:
            informers: dict[str, Informer[Any]] = {}
            kinds = DynamicInformers(api, Store(VolcanoGlobalConfiguration()), informers, options=WatchOptions())
            kinds.discovery_interval_seconds = interval_seconds
            kinds.set_kinds([DEPLOYMENT])
            running = group.create_task(kinds.run())
            yield server, kinds, informers
            running.cancel()


async def test_kind_that_is_no_longer_served_blocks_nothing(tmp_path):
    """Its CRD was deleted, and then a change of the configuration lists all kinds again."""
    not_found = refusing(404, "not found")
    async with watching_deployments(tmp_path, not_found, interval_seconds=0.1) as (server, kinds, informers):
        await poll(lambda: [informer.is_synced for informer in informers.values()] == [True], "watched")
        for path in (GROUP_PATH, PATH):
            server.says("GET", path, not_found)
        kinds.set_kinds([DEPLOYMENT])
        informers["deployments.apps"].relist()
        await poll(lambda: not informers, "stopped")
        server.says("GET", PATH, listing(version=2))
        server.says("GET", GROUP_PATH, answering(200, SERVED))
        await poll(lambda: [informer.is_synced for informer in informers.values()] == [True], "watched again")


async def test_kind_that_is_no_longer_permitted_blocks_no_new_leader(tmp_path):
    hang = watching(then="hang")
    async with watching_deployments(tmp_path, hang, interval_seconds=3600) as (server, kinds, informers):
        await poll(lambda: server.seen("WATCH") and not kinds._unsynced, "watched")
        server.says("GET", PATH, refusing(403))
        [informer] = informers.values()
        informer._listed_at -= 6
        informer.catch_up()
        kinds.look_up()
        await poll(lambda: not informers, "stopped")


async def test_changed_kinds_list_only_bindings_and_templates_again(tmp_path):
    async with scripted_server() as server, Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api:
        store, options = Store(), WatchOptions()
        informers = build_informers(api, store, options)
        informers["deployments.apps"] = audited_informer(api, "/", store.templates(DEPLOYMENT), options=options)
        for informer in informers.values():
            informer.synced.set()
        relist_configured(informers)
    assert sorted(name for name, informer in informers.items() if not informer.is_synced) == [
        "clusterresourcebindings",
        "deployments.apps",
        "resourcebindings",
    ]
