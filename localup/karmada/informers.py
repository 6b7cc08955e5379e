"""Informers and stores for all kinds of objects that the stand-in uses."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from controller.kube.client import Api
from controller.kube.informer import Informer
from localup.karmada.kinds import (
    BINDING,
    CLUSTER,
    CLUSTER_BINDING,
    CLUSTER_POLICY,
    CONFIG_MAP,
    NAMESPACE,
    POLICY,
    WORK,
    Kind,
    kind_of,
)
from localup.karmada.objects import Key, Object, decode_object, is_terminating, key_of
from localup.karmada.store import Store
from localup.karmada.works import binding_key


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
