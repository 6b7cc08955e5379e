"""Stores of all objects that the stand-in uses, updated by informers and by responses to its own writes.

Writes use optimistic locking; rejections are raised to the caller.
"""

import asyncio
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Final

import msgspec

from controller.api.keys import CLUSTERS, Resource
from controller.kube.client import Api
from controller.kube.collection import Collection
from controller.kube.errors import NotFound
from controller.kube.informer import Informer
from localup.karmada.objects import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_POLICIES,
    NAMESPACES,
    POLICIES,
    WATCHED,
    WORKS,
    Key,
    Object,
    StoredObject,
    binding_key,
    finalizers_of,
    is_a,
    is_terminating,
    key_of,
    merge_patch,
    uid_of,
    with_metadata,
)

EventHandler = Callable[[Object | None, Object | None], None]
"""Called with an object before and after a change; ``None`` where it does not exist."""

STATUS: Final = "/status"


class Store(Collection[StoredObject]):
    """Objects of one kind by key."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(self._decode, self._changed)
        self.resource = resource
        self._event_handlers: list[EventHandler] = []

    def add_event_handler(self, handler: EventHandler) -> None:
        """Call *handler* at every later change."""
        self._event_handlers.append(handler)

    def _decode(self, raw: bytes) -> StoredObject:
        """Decode an object; list items of built-in kinds lack their apiVersion and kind."""
        item = StoredObject.decode(raw)
        item.setdefault("apiVersion", self.resource.api_version)
        item.setdefault("kind", self.resource.kind)
        return item

    def _changed(self, old: StoredObject | None, new: StoredObject | None) -> None:
        if old is not None and new is not None and old.uid != new.uid:
            self._notify(old, None)
            old = None
        if old is None or new is None or old.resource_version != new.resource_version:
            self._notify(old, new)

    def _notify(self, old: Object | None, new: Object | None) -> None:
        for handler in self._event_handlers:
            handler(old, new)


class Cache:
    """One store per kind, and writes with limited concurrency; responses are stored, rejections raise `ApiError`."""

    def __init__(
        self,
        api: Api,
        resources: Iterable[Resource],
        *,
        in_flight: int = 16,
        now: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        self.stores: Mapping[Resource, Store] = {resource: Store(resource) for resource in resources}
        self.now = now
        self.random = random or Random()  # noqa: S311 -- spreads retries and names objects, no secrets
        self._api = api
        self._semaphore = asyncio.Semaphore(in_flight)

    def new_id(self) -> str:
        """Return a new random uid."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    async def run(self, *, synced: asyncio.Event) -> None:
        """Update all stores until cancelled; *synced* is set once all are filled."""
        informers = [
            Informer(self._api, resource.path, decode=store.decode, sink=store)
            for resource, store in self.stores.items()
        ]
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run())
            for informer in informers:
                await informer.synced.wait()
            synced.set()

    def store_of(self, item: Object) -> Store | None:
        """Return the store for the kind of an object or reference, ``None`` if the kind is not watched."""
        return next((store for resource, store in self.stores.items() if is_a(item, resource)), None)

    async def create(self, item: Object, *, observe: bool = True) -> Object:
        """Create *item* and return it as stored; raise `Conflict` if the name exists.

        Unless *observe*, its store has it only after the event of the watch.
        """
        store = self._store(item)
        async with self._semaphore:
            answer = await self._api.create(store.resource.path_in(key_of(item).namespace), msgspec.json.encode(item))
        return _observe(store, answer) if observe else store.decode(answer)

    async def update(self, old: Object, new: Object, *, part: str = "", any_version: bool = False) -> Object:
        """Patch *old* to *new*, or its status with part `STATUS`; equal objects are not written.

        Raises `Conflict` if *old* is not the current version, unless *any_version*.
        """
        patch = merge_patch(old, new)
        if not patch:
            return old
        if not any_version:
            guard = {"resourceVersion": old["metadata"]["resourceVersion"], "uid": uid_of(old)}
            patch["metadata"] = {**patch.get("metadata", {}), **guard}
        store = self._store(old)
        async with self._semaphore:
            path = store.resource.item_path(*key_of(old)) + part
            answer = await self._api.patch(path, msgspec.json.encode(patch), kind="merge")
        return _observe(store, answer)

    async def delete(self, item: Object, *, grace_seconds: int | None = None) -> None:
        """Delete *item* with its kind's grace period or *grace_seconds*; absent objects are ignored.

        Raises `Conflict` if another object has the name.
        """
        grace = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid_of(item)}, **grace}
        async with self._semaphore:
            with suppress(NotFound):
                path = self._store(item).resource.item_path(*key_of(item))
                await self._api.delete(path, msgspec.json.encode(options))

    async def remove_finalizer(self, item: Object, finalizer: str) -> None:
        """Remove *finalizer* from *item*, if it is there."""
        remaining = [name for name in finalizers_of(item) if name != finalizer]
        await self.update(item, with_metadata(item, finalizers=remaining))

    def _store(self, item: Object) -> Store:
        store = self.store_of(item)
        if store is None:
            raise LookupError(f"kind {item['kind']} is not watched")
        return store


class ControlPlaneCache(Cache):
    """Objects of Karmada's control plane: policies, templates of these kinds, bindings, works and clusters."""

    def __init__(
        self, api: Api, templates: Sequence[Resource], *, now: Callable[[], float] = time.time, random: Random | None
    ) -> None:
        super().__init__(api, (*templates, *WATCHED), now=now, random=random)
        self.templates = [self.stores[resource] for resource in templates]
        self.policies = [self.stores[resource] for resource in (POLICIES, CLUSTER_POLICIES)]
        self.bindings, self.cluster_bindings = self.stores[BINDINGS], self.stores[CLUSTER_BINDINGS]
        self.works, self.clusters, self.namespaces = self.stores[WORKS], self.stores[CLUSTERS], self.stores[NAMESPACES]
        self._works_of: defaultdict[Key, set[Key]] = defaultdict(set)
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
        works = (self.works.get(key) for key in sorted(self._works_of.get(key_of(binding), ())))
        return [item for item in works if item and not is_terminating(item)]

    def _work_changed(self, old: Object | None, new: Object | None) -> None:
        for work, note in ((old, set.discard), (new, set.add)):
            if work is not None:
                note(self._works_of[binding_key(work)], key_of(work))
                if not self._works_of[binding_key(work)]:
                    del self._works_of[binding_key(work)]


def _observe(store: Store, answer: bytes) -> Object:
    stored = store.decode(answer)
    store.upsert(stored)
    return stored
