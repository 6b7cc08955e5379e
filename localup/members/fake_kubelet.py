"""Fakes Volcano, the kubelets and the nodes of one member cluster.

Jobs that Karmada writes run in the simulated member; the results are written as pods and status. Pods with capacity
have a node; the others have none.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from controller.api.keys import JOBS, Resource
from controller.engine.state.resources import PODS, Resources
from controller.kube.client import Api
from controller.kube.errors import Conflict, NotFound
from localup.karmada.cache import STATUS, Cache
from localup.karmada.clusters import MemberDescription
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
                await self._api.create(_PODS.item_path("kube-system", "").rstrip("/"), msgspec.json.encode(pod))
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
                return
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
            self._advances.add_after(key, max(0, due - now))

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
