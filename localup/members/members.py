"""Runs member clusters for annotated Clusters: API server, fake kubelet, and registration in Karmada.

An API server keeps its objects while its Cluster is deleted.
"""

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
import structlog
from pydantic import BaseModel, ConfigDict, Field

from controller.api.keys import CLUSTERS
from controller.kube.client import Api
from controller.kube.errors import Conflict
from localup.binaries import Binaries
from localup.controlplane import CRDS, ControlPlane
from localup.karmada.cache import Cache
from localup.karmada.clusters import DescriptionError, MemberDescription
from localup.karmada.controller import WorkQueue
from localup.karmada.objects import Key, Object, annotations_of, is_terminating, key_of
from localup.karmada.settings import Seconds
from localup.members.fake_kubelet import FakeKubelet


class MembersSettings(BaseModel):
    """The flags."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kubeconfig: Path = Field(description="kubeconfig of the control plane")
    store: str = Field(description="storage of the members: the URL of an etcd and a prefix")
    programs: Path = Field(description="folder of kube-apiserver")
    run_time: Seconds = Field(10, description="run time of jobs without a run time annotation")


#: The only CRD of a member.
_DEFINITIONS: Final = CRDS / "batch.volcano.sh_jobs.yaml"


@dataclass(frozen=True, slots=True)
class ExternalEtcd:
    """etcd that another process has started."""

    url: str
    binaries: Binaries


@dataclass(slots=True)
class MemberApiServer:
    """API server of a member."""

    plane: ControlPlane
    is_up: bool = True

    def set_running(self, *, up: bool) -> None:
        """Restart or kill it unless it is already in the desired state."""
        if up != self.is_up:
            if up:
                self.plane.restart()
            else:
                self.plane.kill()
            self.is_up = up


@dataclass(slots=True)
class MemberApiServers:
    """All API servers, in one etcd."""

    store: str
    """URL of an etcd and a prefix."""
    binaries: Binaries
    _apiservers: dict[str, MemberApiServer] = field(default_factory=dict)

    def ensure(self, name: str) -> MemberApiServer:
        """Return the API server of a cluster; a new one is started first, which takes some seconds."""
        if name not in self._apiservers:
            place = urlsplit(self.store)
            etcd = ExternalEtcd(f"{place.scheme}://{place.netloc}", self.binaries)
            plane = ControlPlane(etcd, prefix=f"{place.path}/{name}", controllers=False, crds=_DEFINITIONS)
            plane.start()
            self._apiservers[name] = MemberApiServer(plane)
        return self._apiservers[name]

    def stop(self) -> None:
        """Stop all API servers."""
        while self._apiservers:
            self._apiservers.popitem()[1].plane.stop()


log = structlog.get_logger()

_SECRETS = "/api/v1/namespaces/karmada-cluster/secrets"


@dataclass(frozen=True, slots=True)
class Member:
    """Member cluster with its API server and fake kubelet."""

    apiserver: MemberApiServer
    kubelet: FakeKubelet


class Members:
    """All member clusters of a control plane."""

    def __init__(self, api: Api, apiservers: MemberApiServers, *, run_time: float) -> None:
        self._api = api
        self._apiservers = apiservers
        self._run_time = run_time
        self._cache = Cache(api, (CLUSTERS,))
        self._clusters = self._cache.stores[CLUSTERS]
        self._members: dict[str, Member] = {}
        self._queue = WorkQueue[str]("members", self._reconcile)
        self._clusters.add_event_handler(self._cluster_changed)
        self._tasks = asyncio.TaskGroup()
        self._connections = AsyncExitStack()

    async def run(self) -> None:
        """Follow Clusters until cancelled."""
        synced = asyncio.Event()
        async with self._connections, self._tasks:
            self._tasks.create_task(self._cache.run(synced=synced))
            await synced.wait()
            log.info("all lists applied, acting")
            # Starting two API servers at a time is faster than starting all at once.
            self._tasks.create_task(self._queue.serve(2))

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        if old is None or new is None or annotations_of(old) != annotations_of(new):
            self._queue.add(key_of(new or old or {}).name)

    async def _reconcile(self, name: str) -> None:
        cluster = self._clusters.get(Key("", name))
        if cluster is None and name in self._members:  # stopped until the Cluster is recreated
            await asyncio.to_thread(self._members[name].apiserver.set_running, up=False)
        if cluster is None or is_terminating(cluster):
            return
        try:
            description = MemberDescription.of(cluster)
        except DescriptionError as error:
            log.error("cluster description invalid", cluster=name, error=str(error))  # noqa: TRY400 -- the error is complete without a traceback
            return
        if description is None:
            return
        member = self._members.get(name) or await self._open(name)
        await asyncio.to_thread(member.apiserver.set_running, up=description.is_reachable)
        await self._join(name, member.apiserver)
        if description.is_reachable:
            await member.kubelet.apply_description(description)

    async def _open(self, name: str) -> Member:
        apiserver = await asyncio.to_thread(self._apiservers.ensure, name)
        connecting = Api.connect(apiserver.plane.kubeconfig("admin"), user_agent="member-player")
        api = await self._connections.enter_async_context(connecting)
        member = Member(apiserver, FakeKubelet(api, run_time=self._run_time))
        self._tasks.create_task(member.kubelet.run())
        self._members[name] = member
        log.info("member started", cluster=name, server=apiserver.plane.url)
        return member

    async def _join(self, name: str, apiserver: MemberApiServer) -> None:
        """Set address and credentials of the member in its Cluster."""
        credentials = {"token": apiserver.plane.token("admin"), "caBundle": apiserver.plane.ca}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": credentials}
        with suppress(Conflict):
            await self._api.create(_SECRETS, msgspec.json.encode(secret))
        reference = {"namespace": "karmada-cluster", "name": name}
        spec = {"syncMode": "Push", "apiEndpoint": apiserver.plane.url, "secretRef": reference}
        await self._api.patch(f"{CLUSTERS.path}/{name}", msgspec.json.encode({"spec": spec}), kind="merge")
