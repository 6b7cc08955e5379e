"""Our writes: only so many at once, each on condition that nothing has changed since we looked.

What the API server answers goes into the store. A refusal is the caller's.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from controller.kube import Api, ApiError, NotFound
from localup.karmada.conditions import timestamp
from localup.karmada.objects import Object, decode_object, key_of, merge_patch, uid_of
from localup.karmada.store import Store

STATUS: Final = "/status"


@dataclass(frozen=True, slots=True)
class EventMessage:
    """What an event says, and which part of Karmada says it."""

    component: str
    reason: str
    message: str
    kind: str = "Normal"


class Client:
    """The way to the API server for all parts together."""

    def __init__(self, api: Api, *, in_flight: int) -> None:
        self._api = api
        self._semaphore = asyncio.Semaphore(in_flight)

    async def create(self, store: Store, item: Object) -> Object:
        """Create *item* and return it as stored.

        Raises:
            ApiError: It was refused; a Conflict says that there is one of that name.
        """
        path = store.kind.collection(key_of(item).namespace)
        async with self._semaphore:
            answer = decode_object(await self._api.create(path, msgspec.json.encode(item)))
        store.observe(answer)
        return answer

    async def update(self, store: Store, old: Object, new: Object, *, part: str = "") -> Object:
        """Make *old* into *new*, or its status with the part `STATUS`; nothing is sent when they are equal.

        Raises:
            ApiError: It was refused; a Conflict says that it is not *old* any more.
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
        """Write a core/v1 event about an object, as Karmada's recorders do; one that is refused is lost."""
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
        """Delete *item*, within its kind's own grace or this one; one that is gone already is no failure.

        Raises:
            ApiError: It was refused; a Conflict says that another one has its name.
        """
        grace = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        uid = {"preconditions": {"uid": uid_of(item)}}
        options = {"kind": "DeleteOptions", "apiVersion": "v1", **uid, **grace}
        async with self._semaphore:
            with suppress(NotFound):
                await self._api.delete(store.kind.path_of(key_of(item)), msgspec.json.encode(options))
