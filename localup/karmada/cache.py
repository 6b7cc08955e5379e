"""Stores of all objects that the stand-in uses, updated by informers and by responses to its own writes.

A store is never older than the last own write. Writes use optimistic locking; rejections are raised to the caller.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from controller.kube.client import Api
from controller.kube.errors import ApiError, NotFound
from controller.kube.informer import Informer
from localup.karmada.objects import (
    BINDING,
    CLUSTER,
    CLUSTER_BINDING,
    CLUSTER_POLICY,
    CONFIG_MAP,
    NAMESPACE,
    POLICY,
    WORK,
    Key,
    Kind,
    Object,
    decode_object,
    finalizers_of,
    is_a,
    is_terminating,
    key_of,
    merge_patch,
    timestamp,
    uid_of,
    version_of,
    with_metadata,
)
from localup.karmada.works import binding_key

EventHandler = Callable[[Object | None, Object | None], None]

"""Called with an object before and after a change; ``None`` where it does not exist."""

#: Number of remembered removals; responses to writes are never older than these.
_REMEMBERED: Final = 1024


class Store:
    """Objects of one kind by key."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._objects: dict[Key, Object] = {}
        self._event_handlers: list[EventHandler] = []
        self._removed_uids: deque[str] = deque(maxlen=_REMEMBERED)

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    def get(self, key: Key) -> Object | None:
        """Return the object with *key*, ``None`` if absent."""
        return self._objects.get(key)

    def add_event_handler(self, handler: EventHandler) -> None:
        """Call *handler* at every later change."""
        self._event_handlers.append(handler)

    def replace(self, objects: Sequence[Object], *, unreadable: Iterable[tuple[str, str]] = ()) -> None:
        """Replace the content with *objects*; absent objects are removed unless listed in *unreadable*."""
        remaining = {key_of(item) for item in objects} | {Key(*name) for name in unreadable}
        for old in [each for key, each in self._objects.items() if key not in remaining]:
            self.remove(old)
        for item in objects:
            self.upsert(item)

    def forget(self, namespace: str, name: str) -> None:
        """Remove an object whose latest state cannot be decoded."""
        old = self._objects.get(Key(namespace, name))
        if old is not None:
            self.remove(old)

    def upsert(self, obj: Object) -> None:
        """Add or update *obj* unless a newer version is stored."""
        old = self._objects.get(key_of(obj))
        if old is not None and version_of(old) >= version_of(obj):
            return
        if old is not None and uid_of(old) != uid_of(obj):
            self.remove(old)
            old = None
        self._objects[key_of(obj)] = obj
        self._notify(old, obj)

    def remove(self, obj: Object) -> None:
        """Remove *obj* unless another object has its name."""
        old = self._objects.get(key_of(obj))
        if old is not None and uid_of(old) == uid_of(obj):
            del self._objects[key_of(obj)]
            self._removed_uids.append(uid_of(obj))
            self._notify(old, None)

    def observe(self, answer: Object) -> None:
        """Store the response to a write unless the object was removed meanwhile."""
        if uid_of(answer) not in self._removed_uids:
            self.upsert(answer)

    def _notify(self, old: Object | None, new: Object | None) -> None:
        for handler in self._event_handlers:
            handler(old, new)


STATUS: Final = "/status"


@dataclass(frozen=True, slots=True)
class EventMessage:
    """Reason and message of an event and the reporting component."""

    component: str
    reason: str
    message: str
    kind: str = "Normal"


class Cache:
    """One store per kind, and writes with limited concurrency; responses are stored."""

    def __init__(self, api: Api, kinds: Iterable[Kind], *, in_flight: int) -> None:
        self.stores: Mapping[Kind, Store] = {kind: Store(kind) for kind in kinds}
        self._api = api
        self._semaphore = asyncio.Semaphore(in_flight)

    async def run(self, *, synced: asyncio.Event) -> None:
        """Update all stores until cancelled; *synced* is set once all are filled."""
        informers = [
            Informer(self._api, kind.path, decode=_decoder(kind), sink=store) for kind, store in self.stores.items()
        ]
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run())
            for informer in informers:
                await informer.synced.wait()
            synced.set()

    def store_of(self, item: Object) -> Store | None:
        """Return the store for the kind of an object or reference, ``None`` if the kind is not watched."""
        return next((store for kind, store in self.stores.items() if is_a(item, kind)), None)

    async def create(self, item: Object) -> Object:
        """Create *item* and return it as stored.

        Raises:
            ApiError: The server rejected it; a Conflict if the name exists.
        """
        store = self._store(item)
        async with self._semaphore:
            path = store.kind.collection(key_of(item).namespace)
            answer = decode_object(await self._api.create(path, msgspec.json.encode(item)))
        store.observe(answer)
        return answer

    async def update(self, old: Object, new: Object, *, part: str = "") -> Object:
        """Patch *old* to *new*, or its status with part `STATUS`; equal objects are not written.

        Raises:
            ApiError: The server rejected it; a Conflict if *old* is not the current version.
        """
        patch = merge_patch(old, new)
        if not patch:
            return old
        guard = {"resourceVersion": old["metadata"]["resourceVersion"], "uid": uid_of(old)}
        patch["metadata"] = {**patch.get("metadata", {}), **guard}
        store = self._store(old)
        async with self._semaphore:
            path = store.kind.path_of(key_of(old)) + part
            answer = decode_object(await self._api.patch(path, msgspec.json.encode(patch), kind="merge"))
        store.observe(answer)
        return answer

    async def delete(self, item: Object, *, grace_seconds: int | None = None) -> None:
        """Delete *item* with its kind's grace period or *grace_seconds*; absent objects are ignored.

        Raises:
            ApiError: The server rejected it; a Conflict if another object has the name.
        """
        grace = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid_of(item)}, **grace}
        async with self._semaphore:
            with suppress(NotFound):
                await self._api.delete(self._store(item).kind.path_of(key_of(item)), msgspec.json.encode(options))

    async def remove_finalizer(self, item: Object, finalizer: str) -> None:
        """Remove *finalizer* from *item*, if it is there."""
        remaining = [name for name in finalizers_of(item) if name != finalizer]
        await self.update(item, with_metadata(item, finalizers=remaining))

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

    def _store(self, item: Object) -> Store:
        store = self.store_of(item)
        if store is None:
            raise LookupError(f"kind {item['kind']} is not watched")
        return store


class ControlPlaneCache(Cache):
    """Objects of Karmada's control plane: policies, templates of these kinds, bindings, works and clusters."""

    def __init__(self, api: Api, templates: Sequence[Kind], *, dependents: bool, in_flight: int) -> None:
        needed = (CONFIG_MAP,) if dependents else ()
        ours = (POLICY, CLUSTER_POLICY, BINDING, CLUSTER_BINDING, WORK, CLUSTER, NAMESPACE)
        super().__init__(api, (*templates, *needed, *ours), in_flight=in_flight)
        self.templates = [self.stores[kind] for kind in templates]
        self.policies = [self.stores[kind] for kind in (POLICY, CLUSTER_POLICY)]
        self.bindings, self.cluster_bindings = self.stores[BINDING], self.stores[CLUSTER_BINDING]
        self.works, self.clusters, self.namespaces = self.stores[WORK], self.stores[CLUSTER], self.stores[NAMESPACE]
        self._works_of: dict[Key, set[Key]] = {}
        self.works.add_event_handler(self._work_changed)

    def bindings_for(self, namespace: str) -> Store:
        """Return the store for bindings of a namespace, or of cluster-scoped templates."""
        return self.bindings if namespace else self.cluster_bindings

    def template_of(self, binding: Object) -> Object | None:
        """Return the template of a binding."""
        reference = binding["spec"]["resource"]
        store = self.store_of(reference)
        return store.get(Key(reference.get("namespace", ""), reference["name"])) if store else None

    def works_of(self, binding: Object) -> list[Object]:
        """Return works of a binding that are not terminating, including those of removed clusters."""
        found = (self.works.get(key) for key in sorted(self._works_of.get(key_of(binding), ())))
        return [item for item in found if item and not is_terminating(item)]

    def _work_changed(self, old: Object | None, new: Object | None) -> None:
        for work, note in ((old, set.discard), (new, set.add)):
            if work is not None:
                note(self._works_of.setdefault(binding_key(work), set()), key_of(work))
                if not self._works_of[binding_key(work)]:
                    del self._works_of[binding_key(work)]


def _decoder(kind: Kind) -> Callable[[bytes], Object]:
    """Return a decoder of objects; list items of built-in kinds lack their apiVersion and kind."""
    identity = {"apiVersion": kind.api_version, "kind": kind.name}
    return lambda raw: identity | decode_object(raw)
