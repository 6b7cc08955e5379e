"""Client for writes with limited concurrency and optimistic locking.

Responses are stored in the kind's store. Rejections are raised to the caller.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from controller.kube.client import Api
from controller.kube.errors import ApiError, NotFound
from localup.karmada.conditions import timestamp
from localup.karmada.objects import Object, decode_object, key_of, merge_patch, uid_of
from localup.karmada.store import Store

STATUS: Final = "/status"


@dataclass(frozen=True, slots=True)
class EventMessage:
    """Reason and message of an event and the reporting component."""

    component: str
    reason: str
    message: str
    kind: str = "Normal"


class Client:
    """Shared API client of all controllers."""

    def __init__(self, api: Api, *, in_flight: int) -> None:
        self._api = api
        self._semaphore = asyncio.Semaphore(in_flight)

    async def create(self, store: Store, item: Object) -> Object:
        """Create *item* and return it as stored.

        Raises:
            ApiError: The server rejected it; a Conflict if the name exists.
        """
        path = store.kind.collection(key_of(item).namespace)
        async with self._semaphore:
            answer = decode_object(await self._api.create(path, msgspec.json.encode(item)))
        store.observe(answer)
        return answer

    async def update(self, store: Store, old: Object, new: Object, *, part: str = "") -> Object:
        """Patch *old* to *new*, or its status with part `STATUS`; equal objects are not written.

        Raises:
            ApiError: The server rejected it; a Conflict if *old* is not the current version.
        """
        patch = merge_patch(old, new)
        if not patch:
            return old
        known = old["metadata"]
        guard = {"resourceVersion": known["resourceVersion"], "uid": known["uid"]}
        patch["metadata"] = {**patch.get("metadata", {}), **guard}
        path = store.kind.path_of(key_of(old)) + part
        async with self._semaphore:
            answer = decode_object(await self._api.patch(path, msgspec.json.encode(patch), kind="merge"))
        store.observe(answer)
        return answer

    async def record_event(self, about: Object, message: EventMessage) -> None:
        """Create a core/v1 event as Karmada's event recorder does; rejected events are dropped."""
        key, now = key_of(about), time.time()
        namespace = key.namespace or "default"
        stamp = timestamp(now)
        regarding = {"apiVersion": about["apiVersion"], "kind": about["kind"], "name": key.name, "uid": uid_of(about)}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{key.name}.{round(now * 1e9):x}", "namespace": namespace},
            "involvedObject": {**regarding, **({"namespace": key.namespace} if key.namespace else {})},
            "reason": message.reason,
            "message": message.message,
            "type": message.kind,
            "count": 1,
            "source": {"component": message.component},
            "reportingComponent": message.component,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
        }
        async with self._semaphore:
            with suppress(ApiError):
                await self._api.create(f"/api/v1/namespaces/{namespace}/events", msgspec.json.encode(event))

    async def delete(self, store: Store, item: Object, *, grace_seconds: int | None = None) -> None:
        """Delete *item* with its kind's grace period or *grace_seconds*; absent objects are ignored.

        Raises:
            ApiError: The server rejected it; a Conflict if another object has the name.
        """
        grace = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        uid = {"preconditions": {"uid": uid_of(item)}}
        options = {"kind": "DeleteOptions", "apiVersion": "v1", **uid, **grace}
        async with self._semaphore:
            with suppress(NotFound):
                await self._api.delete(store.kind.path_of(key_of(item)), msgspec.json.encode(options))
