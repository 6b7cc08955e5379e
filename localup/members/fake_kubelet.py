"""Fakes Volcano, the kubelets and the nodes of one member cluster.

Jobs that Karmada writes run in the simulated member; the results are written as pods and status.
"""

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import msgspec
import structlog

from controller.kube.client import Api
from controller.kube.errors import Conflict, NotFound
from controller.kube.informer import Informer
from localup.karmada.client import STATUS, Client
from localup.karmada.informers import decoder
from localup.karmada.kinds import TEMPLATES, Kind
from localup.karmada.member import Member
from localup.karmada.objects import Key, Object, generation_of, is_terminating, key_of
from localup.karmada.packing import spread
from localup.karmada.status_reflector import status_in_member
from localup.karmada.store import Store
from localup.karmada.summary import MemberDescription
from localup.karmada.workloads import parse_workload
from localup.karmada.workqueue import WorkQueue
from localup.members.fake_node import (
    EXTERNAL_USAGE_POD,
    NODE,
    POD,
    external_usage_key,
    external_usage_pod,
    new_node,
    node_status,
)
from localup.members.pods import belongs_to, pods_of

log = structlog.get_logger()

_IN_FLIGHT: Final = 8
_KINDS: Final = tuple(TEMPLATES.values())


class ObjectRef(NamedTuple):
    """Reference to an object with pods."""

    kind: Kind
    key: Key

    def __str__(self) -> str:
        return f"{self.kind.plural}.{self.kind.api_version}/{self.key}"


class FakeKubelet:
    """Fake Volcano and kubelets of a member cluster."""

    def __init__(self, api: Api, *, run_time: float, pods_late: float) -> None:
        self._api = api
        self._run_time = run_time
        self._client = Client(api, in_flight=_IN_FLIGHT)
        self._member = Member[ObjectRef](pods_late=pods_late)
        self._stores = {kind: Store(kind) for kind in _KINDS}
        self._pods = Store(POD)
        self._queue = WorkQueue[ObjectRef]("fake kubelet", self._reconcile)
        self._changed: set[ObjectRef] = set()
        self._wake = asyncio.Event()
        self._nodes = 0
        for kind, store in self._stores.items():
            store.add_event_handler(partial(self._object_changed, kind))

    async def run(self) -> None:
        """Run until cancelled."""
        stores = (*self._stores.values(), self._pods)
        informers = [Informer(self._api, store.kind.path, decode=decoder(store.kind), sink=store) for store in stores]
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run())
            for informer in informers:
                await informer.synced.wait()
            tasks.create_task(self._queue.serve(_IN_FLIGHT))
            tasks.create_task(self._advance_loop())

    async def apply_description(self, description: MemberDescription) -> None:
        """Create nodes with the described capacity and pods for external usage."""
        sizes = description.nodes or (description.allocatable,)
        for number, (size, used) in enumerate(zip(sizes, spread(description.external_usage, sizes), strict=True)):
            with suppress(Conflict):
                await self._api.create(NODE.path, msgspec.json.encode(new_node(number)))
            status = msgspec.json.encode(node_status(size))
            await self._api.patch(f"{NODE.path_of(key_of(new_node(number)))}/status", status, kind="json")
            await self._delete(POD.path_of(external_usage_key(number)))
            if pod := external_usage_pod(used, number):
                await self._api.create(POD.collection(EXTERNAL_USAGE_POD.namespace), msgspec.json.encode(pod))
        for number in range(len(sizes), self._nodes):
            await self._delete(POD.path_of(external_usage_key(number)))
            await self._delete(NODE.path_of(key_of(new_node(number))))
        self._nodes = len(sizes)
        self._member.allocatable, self._member.external_usage = description.allocatable, description.external_usage
        self._member.node_sizes = description.nodes
        self._wake.set()

    async def _delete(self, path: str) -> None:
        with suppress(NotFound):
            await self._api.delete(path, msgspec.json.encode({"gracePeriodSeconds": 0}))

    def _object_changed(self, kind: Kind, old: Object | None, new: Object | None) -> None:
        ref = ObjectRef(kind, key_of(new or old or {}))
        if new is None or is_terminating(new):
            self._member.remove(ref)
        elif old is None or generation_of(old) != generation_of(new):
            try:
                self._member.submit(ref, parse_workload(new, run_time=self._run_time), time.time())
            except ValueError as error:
                log.error("object invalid", object=str(ref), error=str(error))  # noqa: TRY400 -- the error is complete without a traceback
                return
        else:
            return
        self._changed.add(ref)
        self._wake.set()

    async def _advance_loop(self) -> None:
        while True:
            await self._pause()
            self._wake.clear()
            changed, self._changed = self._changed, set()
            for ref in changed | self._member.advance(time.time()):
                self._queue.add(ref)

    async def _pause(self) -> None:
        """Wait until a change or the next due time."""
        due = self._member.next_change()
        try:
            async with asyncio.timeout(max(0, due - time.time()) if due is not None else None):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _reconcile(self, ref: ObjectRef) -> None:
        store = self._stores[ref.kind]
        found, run = store.get(ref.key), self._member.runs.get(ref)
        nodes = self._member.nodes_of(ref)
        pods = pods_of(found, run, nodes, owner=str(ref)) if found and run else []
        wanted = {key_of(item): item for item in pods}
        for pod in self._pods:
            if belongs_to(pod, str(ref)) and not _same(pod, wanted.get(key_of(pod))):
                await self._client.delete(self._pods, pod, grace_seconds=0)
                self._pods.remove(pod)
        for key, pod in wanted.items():
            if self._pods.get(key) is None:
                with suppress(Conflict):
                    await self._client.create(self._pods, pod)
        if found and run:
            status = status_in_member(found, run)
            if "observedGeneration" in status:
                status["observedGeneration"] = generation_of(found)
            await self._client.update(store, found, {**found, "status": status}, part=STATUS)


def _same(pod: Object, wanted: Object | None) -> bool:
    """Say whether a pod is as wanted: it is there, and it has its node."""
    return wanted is not None and pod["spec"].get("nodeName") == wanted["spec"].get("nodeName")
