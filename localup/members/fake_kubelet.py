"""Fakes Volcano, the kubelets and the nodes of one member cluster.

Jobs that Karmada writes run in the simulated member; the results are written as pods and status. Pods with capacity
have a node; the others have none.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from controller.engine.state.resources import PODS, Resources
from controller.kube.client import Api
from controller.kube.errors import Conflict, NotFound
from localup.karmada.cache import STATUS, Cache
from localup.karmada.controller import WorkQueue
from localup.karmada.members.member import Member, Phase, Run, spread
from localup.karmada.members.status import status_in_member
from localup.karmada.members.summary import MemberDescription
from localup.karmada.members.workloads import parse_workload, quantities
from localup.karmada.objects import (
    TEMPLATES,
    VOLCANO_JOB,
    Key,
    Kind,
    Object,
    annotations_of,
    generation_of,
    is_a,
    is_terminating,
    key_of,
    spec_of,
    uid_of,
)

OWNER: Final = "members.volcano-global.io/owner"

#: Fields that refer to absent priority classes and service accounts.
_LEFT_OUT: Final = frozenset({"priorityClassName", "priority", "serviceAccountName", "serviceAccount"})

_NAME: Final = 40


def pods_of(found: Object, run: Run, nodes: Sequence[Sequence[int]], *, owner: str) -> list[Object]:
    """Return the pods of a running workload on *nodes* by task; none if it does not run."""
    return list(_pods(found, run, nodes, owner)) if run.phase is Phase.RUNNING else []


def belongs_to(pod: Object, owner: str) -> bool:
    """Return whether a pod was created for *owner*."""
    return annotations_of(pod).get(OWNER) == owner


def _pods(found: Object, run: Run, nodes: Sequence[Sequence[int]], owner: str) -> Iterator[Object]:
    key = key_of(found)
    for index, (template, task, bound) in enumerate(zip(_templates(found), run.workload.tasks, nodes, strict=True)):
        for number in range(task.count):
            name = f"{key.name[:_NAME]}-{uid_of(found)[:6]}-{index}-{number}"
            node = node_name(bound[number]) if number < len(bound) else ""
            yield _pod(template, name, key.namespace, owner=owner, node=node)


def _templates(found: Object) -> list[Object]:
    spec = spec_of(found)
    if is_a(found, VOLCANO_JOB):
        return [task.get("template") or {} for task in spec.get("tasks") or ()]
    return [spec.get("template") or {}]


def _pod(template: Object, name: str, namespace: str, *, owner: str, node: str) -> dict[str, Any]:
    spec = {field: value for field, value in (template.get("spec") or {}).items() if field not in _LEFT_OUT}
    labels = (template.get("metadata") or {}).get("labels") or {}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": {OWNER: owner}}
    placed = {"nodeName": node} if node else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, **placed}}


NODE: Final = Kind("v1", "Node", "nodes")

POD: Final = Kind("v1", "Pod", "pods")

NODE_NAME: Final = "node"

EXTERNAL_USAGE_POD: Final = Key("kube-system", "external-usage")


def node_name(number: int) -> str:
    """Return the name of node *number*."""
    return f"{NODE_NAME}-{number}" if number else NODE_NAME


def external_usage_key(number: int) -> Key:
    """Return the key of the pod for external usage on node *number*."""
    return Key(
        EXTERNAL_USAGE_POD.namespace, f"{EXTERNAL_USAGE_POD.name}-{number}" if number else EXTERNAL_USAGE_POD.name
    )


def new_node(number: int = 0) -> dict[str, Any]:
    """Return a new node."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name(number)}}


def node_status(allocatable: Resources) -> list[dict[str, Any]]:
    """Return the JSON Patch that sets capacity and readiness of a node."""
    amounts = quantities(allocatable)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fake kubelet is ready"}
    updated = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return [{"op": "add", "path": f"/status/{name}", "value": value} for name, value in updated.items()]


def external_usage_pod(amounts: Resources, number: int = 0) -> dict[str, Any] | None:
    """Return the pod for external usage on a node; ``None`` without usage. The number of pods is ignored."""
    held = quantities({name: amount for name, amount in amounts.items() if name != PODS})
    if not held:
        return None
    container = {"name": "held", "image": "none", "resources": {"requests": held, "limits": held}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": external_usage_key(number).name, "namespace": EXTERNAL_USAGE_POD.namespace},
        "spec": {"nodeName": node_name(number), "containers": [container]},
    }


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
        self._cache = Cache(api, (*_KINDS, POD), in_flight=_IN_FLIGHT)
        self._member = Member[ObjectRef](pods_late=pods_late)
        self._pods = self._cache.stores[POD]
        self._queue = WorkQueue[ObjectRef]("fake kubelet", self._reconcile)
        self._changed: set[ObjectRef] = set()
        self._wake = asyncio.Event()
        self._nodes = 0
        for kind in _KINDS:
            self._cache.stores[kind].add_event_handler(partial(self._object_changed, kind))

    async def run(self) -> None:
        """Run until cancelled."""
        synced = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._cache.run(synced=synced))
            await synced.wait()
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
        found, run = self._cache.stores[ref.kind].get(ref.key), self._member.runs.get(ref)
        nodes = self._member.nodes_of(ref)
        pods = pods_of(found, run, nodes, owner=str(ref)) if found and run else []
        wanted = {key_of(item): item for item in pods}
        for pod in self._pods:
            if belongs_to(pod, str(ref)) and not _same(pod, wanted.get(key_of(pod))):
                await self._cache.delete(pod, grace_seconds=0)
                self._pods.remove(pod)
        for key, pod in wanted.items():
            if self._pods.get(key) is None:
                with suppress(Conflict):
                    await self._cache.create(pod)
        if found and run:
            status = status_in_member(found, run)
            if "observedGeneration" in status:
                status["observedGeneration"] = generation_of(found)
            await self._cache.update(found, {**found, "status": status}, part=STATUS)


def _same(pod: Object, wanted: Object | None) -> bool:
    """Say whether a pod is as wanted: it is there, and it has its node."""
    return wanted is not None and pod["spec"].get("nodeName") == wanted["spec"].get("nodeName")
