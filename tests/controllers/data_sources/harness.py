"""The data source controller on an in-memory API server and virtual time, with a plugin that the test scripts."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from controller.api.configuration import DataSources
from controller.api.data_sources import DataSet
from controller.api.keys import (
    CONFIG_MAPS,
    DATA_PLUGINS_NAME,
    DATA_SOURCE_CLAIMS,
    DATA_SOURCES,
    RESOURCE_BINDINGS,
    Resource,
)
from controller.cache.data_requirements import DataRequirement
from controller.cache.objects import GroupKind, TemplateKey
from controller.cache.store import Store
from controller.controllers.data_sources.controller import DataSourceController
from controller.controllers.data_sources.locator import DataSourceDependencies
from controller.controllers.data_sources.plugins import LocateError, PluginOptions
from controller.kube.informer import WatchOptions
from tests.controllers.memory import MemoryControlPlane, Traffic, connect
from tests.deterministic.clock import EPOCH, simulate
from tests.deterministic.kinds import BINDINGS, CLUSTERS
from tests.deterministic.objects import CONFIGMAPS, Kind

CLAIMS = Kind(DATA_SOURCE_CLAIMS.group, "v1alpha1", DATA_SOURCE_CLAIMS.plural, "DataSourceClaim", status=True)
SOURCES = Kind(DATA_SOURCES.group, "v1alpha1", DATA_SOURCES.plural, "DataSource", namespaced=False, status=True)
SETTINGS = json.dumps({"system": "amoro", "endpoint": {"url": "http://amoro"}})
FINALIZER = "datadependency.volcano.sh/finalizer"
SOURCE_FINALIZER = "datadependency.volcano.sh/datasource-finalizer"


class ScriptedPlugin:
    """A plugin that answers what *answers* says, and counts."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[str, ...] | LocateError] = {}
        self.asked: list[str] = []
        self.seconds = 0.05

    async def locate(self, data_set: DataSet) -> tuple[str, ...]:
        self.asked.append(data_set.name)
        answer = self.answers.get(data_set.name, ("m1",))
        await asyncio.sleep(self.seconds)
        if isinstance(answer, LocateError):
            raise answer
        return answer


class Harness(MemoryControlPlane):
    """A control plane and the controller's process."""

    def __init__(self, options: DataSources | None = None) -> None:
        kinds = (CLAIMS, SOURCES, BINDINGS, CLUSTERS, CONFIGMAPS)
        super().__init__(kinds, asyncio.get_running_loop().time)
        self.options = options or DataSources()
        self.plugin = ScriptedPlugin()
        self.leads = True
        self.api: Traffic
        self.store: Store
        self.controller: DataSourceController
        self._task: asyncio.Task[Any] | None = None
        self.send("POST", "/api/v1/namespaces", {"metadata": {"name": "volcano-global"}})
        self.configure(SETTINGS)

    # -- the process -----------------------------------------------------------

    async def start(self) -> None:
        """Start a process with an empty cache, and wait until it knows the claims."""
        loop = asyncio.get_running_loop()
        self.api, self.store = Traffic(), Store()
        dependencies = DataSourceDependencies(lambda: self.leads, lambda: self.options, "volcano-global")
        self.controller = DataSourceController(
            connect(self.server, self.api),
            self.store,
            dependencies,
            watch_options=WatchOptions(),
            clock=lambda: int((EPOCH + loop.time()) * 1000),
        )
        self.controller.locator.plugins._create = {"amoro": self._create}
        self.store.on_binding.append(self.controller.on_binding)
        self.store.on_clusters.append(self.controller.on_clusters)
        for name in ("m1", "m2", "m3"):
            body = {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}}
            self.store.clusters.upsert(self.store.clusters.decode(json.dumps(body).encode()))
        for stored in self.server.objects(BINDINGS).values():
            self.store.bindings.upsert(self.store.bindings.decode(json.dumps(stored).encode()))
        self.server.observers.append(self._observe)
        self._task = loop.create_task(self.controller.run())
        await self.controller.synced.wait()

    async def stop(self) -> None:
        """Kill the process."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self.server.observers.clear()
        self._task = None

    def _create(self, _: PluginOptions) -> ScriptedPlugin:
        return self.plugin

    def _observe(self, change: Any) -> None:
        if change.kind == BINDINGS and change.obj is not None:
            self.store.bindings.upsert(self.store.bindings.decode(json.dumps(change.obj).encode()))

    # -- objects -----------------------------------------------------------------

    def configure(self, settings: str | None) -> None:
        path = CONFIG_MAPS.item_path("volcano-global", DATA_PLUGINS_NAME)
        if settings is None:
            self.send("DELETE", path)
            return
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": DATA_PLUGINS_NAME}}
        if self.server.objects(CONFIGMAPS):
            self.send("PATCH", path, {"data": {"amoro": settings}})
        else:
            self.send("POST", path.rpartition("/")[0], {**body, "data": {"amoro": settings}})

    def claim(self, name: str, data: str = "prod.db.user", *, workload: Any = None, **more: Any) -> Any:
        metadata = {"name": name, **more.pop("metadata", {})}
        return self.send("POST", self.folder(DATA_SOURCE_CLAIMS), claim(name, data, workload, metadata, more))

    def source(self, name: str, data: str = "prod.db.user", *clusters: str, **more: Any) -> Any:
        return self.send("POST", DATA_SOURCES.path, source(name, data, *clusters, **more))

    def remove(self, resource: Resource, name: str) -> None:
        self.send("DELETE", self.path(resource, name))

    def status(self, name: str) -> Any:
        return self.server.objects(CLAIMS)["ml", name].get("status", {})

    def reason(self, name: str) -> str:
        return next((condition["reason"] for condition in self.status(name).get("conditions", ())), "")

    @property
    def sources(self) -> dict[str, Any]:
        return {name: obj for (_, name), obj in self.server.objects(SOURCES).items()}

    def located(self) -> dict[str, list[str]]:
        return {obj["spec"]["name"]: obj["spec"]["locality"]["clusterNames"] for obj in self.sources.values()}

    def binding(self, name: str, kind: str = "Deployment", **spec: Any) -> Any:
        api = "apps/v1" if kind == "Deployment" else "batch.volcano.sh/v1alpha1"
        resource = {"apiVersion": api, "kind": kind, "name": name, "namespace": "ml", "uid": f"u-{name}"}
        placement = {"clusterAffinity": {}, "replicaScheduling": {"replicaSchedulingType": "Divided"}}
        body = {
            "apiVersion": RESOURCE_BINDINGS.api_version,
            "kind": "ResourceBinding",
            "metadata": {"name": f"{name}-{kind.lower()}"},
            "spec": {"resource": resource, "placement": placement, **spec},
        }
        return self.send("POST", self.folder(RESOURCE_BINDINGS), body)

    def bound_binding(self, name: str) -> Any:
        return self.server.objects(BINDINGS)["ml", f"{name}-deployment"]

    def requirement(self, name: str, kind: str = "Job.batch.volcano.sh") -> DataRequirement | None:
        return self.controller.index.requirement(TemplateKey(GroupKind(kind), "ml", name), self.options.on_move)


def claim(name: str, data: str, workload: Any, metadata: Any, more: Any) -> dict[str, Any]:
    reference = workload or {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train"}
    spec = {"system": "amoro", "dataSourceType": "table", "dataSourceName": data, "workload": reference, **more}
    return {
        "apiVersion": DATA_SOURCE_CLAIMS.api_version,
        "kind": "DataSourceClaim",
        "metadata": metadata,
        "spec": spec,
    }


def source(name: str, data: str, *clusters: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **more.pop("metadata", {})}
    spec = {"system": "amoro", "type": "table", "name": data, "locality": {"clusterNames": list(clusters)}, **more}
    return {"apiVersion": DATA_SOURCES.api_version, "kind": "DataSource", "metadata": metadata, "spec": spec}


def run(
    scenario: Callable[[Harness], Awaitable[None]], *, options: DataSources | None = None, start: bool = True
) -> None:
    """Run *scenario* on virtual time, with a started process."""

    async def main() -> None:
        harness = Harness(options)
        if start:
            await harness.start()
        try:
            await scenario(harness)
        finally:
            await harness.stop()

    simulate(main, 1)


def simulated(
    *, options: DataSources | None = None, start: bool = True
) -> Callable[[Callable[[Harness], Awaitable[None]]], Callable[[], None]]:
    """Make a test of a function that gets a harness with a started process, on virtual time."""

    def decorate(scenario: Callable[[Harness], Awaitable[None]]) -> Callable[[], None]:
        return lambda: run(scenario, options=options, start=start)

    return decorate
