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
    is_terminating,
    key_of,
    kind_of,
    merge_patch,
    timestamp,
    uid_of,
    version_of,
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


class Informers:
    """One store per kind."""

    def __init__(self, templates: Sequence[Kind], *, dependents: bool = False) -> None:
        self.templates: Mapping[Kind, Store] = {kind: Store(kind) for kind in templates}
        self.config_maps = Store(CONFIG_MAP)
        self.namespaces = Store(NAMESPACE)
        self.needed: Mapping[Kind, Store] = {CONFIG_MAP: self.config_maps} if dependents else {}
        self.policies = Store(POLICY)
        self.cluster_policies = Store(CLUSTER_POLICY)
        self.bindings = Store(BINDING)
        self.cluster_bindings = Store(CLUSTER_BINDING)
        self.works = Store(WORK)
        self.clusters = Store(CLUSTER)
        self._works_of: dict[Key, set[Key]] = {}
        self.works.add_event_handler(self._work_changed)

    @property
    def stores(self) -> tuple[Store, ...]:
        """All stores."""
        policies, bindings = (self.policies, self.cluster_policies), (self.bindings, self.cluster_bindings)
        others = (*policies, *bindings, self.works, self.clusters, self.namespaces)
        return (*self.templates.values(), *self.needed.values(), *others)

    def bindings_for(self, namespace: str) -> Store:
        """Return the store for bindings of a namespace, or of cluster-scoped templates."""
        return self.bindings if namespace else self.cluster_bindings

    def all_policies(self) -> Iterator[Object]:
        """Yield policies of both kinds."""
        yield from self.policies
        yield from self.cluster_policies

    def store_of(self, template: Object) -> Store | None:
        """Return the store for the kind of a template or reference."""
        kind = kind_of(template)
        return (self.templates.get(kind) or self.needed.get(kind)) if kind else None

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

    async def run(self, api: Api, *, synced: asyncio.Event) -> None:
        """Update all stores until cancelled; *synced* is set once all are filled."""
        informers = [Informer(api, store.kind.path, decode=decoder(store.kind), sink=store) for store in self.stores]
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run())
            for informer in informers:
                await informer.synced.wait()
            synced.set()


def decoder(kind: Kind) -> Callable[[bytes], Object]:
    """Return a decoder of objects; list items of built-in kinds lack their apiVersion and kind."""
    identity = {"apiVersion": kind.api_version, "kind": kind.name}

    def decode(raw: bytes) -> Object:
        return identity | decode_object(raw)

    return decode


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
