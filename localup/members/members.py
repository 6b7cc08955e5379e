"""Runs member clusters for annotated Clusters: API server, fake Volcano, kubelets and nodes, registration in Karmada.

Jobs that Karmada writes run in the simulated member; the results are written as pods and status. Pods with capacity
have a node; the others have none. An API server keeps its objects while its Cluster is deleted.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
import structlog
from pydantic import BaseModel, ConfigDict, Field

from controller.api.keys import CLUSTERS, JOBS, Resource
from controller.engine.state.resources import PODS, Resources
from controller.kube.client import Api
from controller.kube.errors import Conflict, NotFound
from localup.binaries import Binaries
from localup.controlplane import CRDS, ControlPlane
from localup.karmada.cache import STATUS, Cache
from localup.karmada.clusters import DescriptionError, MemberDescription
from localup.karmada.controller import WorkQueue
from localup.karmada.member import Member, Phase, Run, spread
from localup.karmada.objects import (
    TEMPLATES,
    Key,
    Object,
    annotations_of,
    generation_of,
    is_a,
    is_terminating,
    key_of,
    new_object,
    spec_of,
    uid_of,
)
from localup.karmada.settings import Seconds
from localup.karmada.status import status_in_member
from localup.karmada.workloads import parse_workload, quantities

_OWNER: Final = "members.volcano-global.io/owner"

#: Fields that refer to absent priority classes and service accounts.
_LEFT_OUT: Final = frozenset({"priorityClassName", "priority", "serviceAccountName", "serviceAccount"})
_NAME: Final = 40
_NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
_PODS: Final = Resource("", "v1", "pods", "Pod")
_KINDS: Final = tuple(TEMPLATES.values())
_IN_FLIGHT: Final = 8


def pods_of(item: Object, run: Run, nodes: Sequence[Sequence[int]], owner: str) -> Iterator[Object]:
    """Yield the pods of a running workload on *nodes* by task; none if it does not run."""
    if run.phase is not Phase.RUNNING:
        return
    key, spec = key_of(item), spec_of(item)
    parts = spec.get("tasks") or () if is_a(item, JOBS) else [spec]
    for index, (part, task, bound) in enumerate(zip(parts, run.workload.tasks, nodes, strict=True)):
        template = part.get("template") or {}
        fields = {name: value for name, value in (template.get("spec") or {}).items() if name not in _LEFT_OUT}
        labels = (template.get("metadata") or {}).get("labels") or {}
        for number in range(task.count):
            name = f"{key.name[:_NAME]}-{uid_of(item)[:6]}-{index}-{number}"
            node = {"nodeName": _node_name(bound[number])} if number < len(bound) else {}
            pod = new_object(_PODS, name, key.namespace, labels=labels, annotations={_OWNER: owner})
            yield {**pod, "spec": {**fields, **node}}


def _node_name(number: int) -> str:
    return f"node-{number}" if number else "node"


def node_status(allocatable: Resources) -> list[dict[str, Any]]:
    """Return the JSON Patch that sets capacity and readiness of a node."""
    amounts = quantities(allocatable)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fake kubelet is ready"}
    updated = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return [{"op": "add", "path": f"/status/{name}", "value": value} for name, value in updated.items()]


def external_usage_pod(amounts: Resources, number: int = 0) -> dict[str, Any]:
    """Return the pod for external usage on a node; the number of pods is ignored."""
    used = quantities({name: amount for name, amount in amounts.items() if name != PODS})
    container = {"name": "held", "image": "none", "resources": {"requests": used, "limits": used}}
    pod = new_object(_PODS, f"external-usage-{number}", "kube-system")
    return {**pod, "spec": {"nodeName": _node_name(number), "containers": [container]}}


log = structlog.get_logger()


class ObjectRef(NamedTuple):
    """Reference to an object with pods."""

    resource: Resource
    key: Key

    def __str__(self) -> str:
        return f"{self.resource.plural}.{self.resource.api_version}/{self.key}"


class FakeKubelet:
    """Fake Volcano and kubelets of a member cluster."""

    def __init__(self, api: Api, *, run_time: float) -> None:
        self._api = api
        self._run_time = run_time
        self._cache = Cache(api, (*_KINDS, _PODS), in_flight=_IN_FLIGHT)
        self._member = Member[ObjectRef]()
        self._pods = self._cache.stores[_PODS]
        self._queue = WorkQueue[ObjectRef]("fake kubelet", self._reconcile)
        self._advances = WorkQueue[str]("advances", self._advance)
        self._changed: set[ObjectRef] = set()
        self._nodes = 0
        for resource in _KINDS:
            self._cache.stores[resource].add_event_handler(partial(self._object_changed, resource))

    async def run(self) -> None:
        """Run until cancelled."""
        synced = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._cache.run(synced=synced))
            await synced.wait()
            tasks.create_task(self._queue.serve(_IN_FLIGHT))
            tasks.create_task(self._advances.serve(1))

    async def apply_description(self, description: MemberDescription) -> None:
        """Create nodes with the described capacity and pods for external usage."""
        sizes = description.nodes or (description.allocatable,)
        for number, (size, used) in enumerate(zip(sizes, spread(description.external_usage, sizes), strict=True)):
            node, pod = new_object(_NODES, _node_name(number)), external_usage_pod(used, number)
            with suppress(Conflict):
                await self._api.create(_NODES.path, msgspec.json.encode(node))
            status = msgspec.json.encode(node_status(size))
            await self._api.patch(f"{_NODES.path}/{_node_name(number)}/status", status, kind="json")
            await self._delete(_PODS.item_path(*key_of(pod)))
            if pod["spec"]["containers"][0]["resources"]["requests"]:
                await self._api.create(_PODS.path_in("kube-system"), msgspec.json.encode(pod))
        for number in range(len(sizes), self._nodes):
            await self._delete(_PODS.item_path(*key_of(external_usage_pod({}, number))))
            await self._delete(f"{_NODES.path}/{_node_name(number)}")
        self._nodes = len(sizes)
        description.apply_to(self._member)
        self._advances.add("")

    async def _delete(self, path: str) -> None:
        with suppress(NotFound):
            await self._api.delete(path, msgspec.json.encode({"gracePeriodSeconds": 0}))

    def _object_changed(self, resource: Resource, old: Object | None, new: Object | None) -> None:
        ref = ObjectRef(resource, key_of(new or old or {}))
        if new is None or is_terminating(new):
            self._member.remove(ref)
        elif old is None or generation_of(old) != generation_of(new):
            try:
                self._member.submit(ref, parse_workload(new, run_time=self._run_time), self._cache.now())
            except ValueError as error:
                log.error("object invalid", object=str(ref), error=str(error))  # noqa: TRY400 -- the error is complete without a traceback
                # Its former tasks are not those of the object any more.
                self._member.remove(ref)
        else:
            return
        self._changed.add(ref)
        self._advances.add("")

    async def _advance(self, key: str) -> None:
        """Advance the member, queue changed objects, and look again at the next due time."""
        now = self._cache.now()
        changed, self._changed = self._changed, set()
        for ref in changed | self._member.advance(now):
            self._queue.add(ref)
        if (due := self._member.next_change()) is not None:
            self._advances.add(key, seconds=max(0, due - now))

    async def _reconcile(self, ref: ObjectRef) -> None:
        item, run = self._cache.stores[ref.resource].get(ref.key), self._member.runs.get(ref)
        pods = list(pods_of(item, run, self._member.nodes_of(ref), str(ref))) if item and run else []
        wanted = {key_of(pod): pod for pod in pods}
        for pod in list(self._pods):
            is_ours = annotations_of(pod).get(_OWNER) == str(ref)
            if is_ours and not _is_placed_as(pod, wanted.get(key_of(pod))):
                await self._cache.delete(pod, grace_seconds=0)
                self._pods.remove(pod)
        for key, new in wanted.items():
            if self._pods.get(key) is None:
                with suppress(Conflict):
                    await self._cache.create(new)
        if item and run:
            status = status_in_member(item, run)
            if "observedGeneration" in status:
                status["observedGeneration"] = generation_of(item)
            await self._cache.update(item, {**item, "status": status}, part=STATUS)


def _is_placed_as(pod: Object, wanted: Object | None) -> bool:
    return wanted is not None and pod["spec"].get("nodeName") == wanted["spec"].get("nodeName")


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


_SECRETS = "/api/v1/namespaces/karmada-cluster/secrets"


@dataclass(frozen=True, slots=True)
class RunningMember:
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
        self._members: dict[str, RunningMember] = {}
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

    async def _open(self, name: str) -> RunningMember:
        apiserver = await asyncio.to_thread(self._apiservers.ensure, name)
        connecting = Api.connect(apiserver.plane.kubeconfig("admin"), user_agent="member-player")
        api = await self._connections.enter_async_context(connecting)
        member = RunningMember(apiserver, FakeKubelet(api, run_time=self._run_time))
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
