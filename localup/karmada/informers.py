"""All objects that Karmada's part looks at, kept in step with the API server."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from controller.cache.informer import Informer
from controller.kube import Api
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
    """One store for each kind."""

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
        """Return where the bindings of templates of a namespace are, or of those that belong to none."""
        return self.bindings if namespace else self.cluster_bindings

    def all_policies(self) -> Iterator[Object]:
        """Yield the policies of both kinds."""
        yield from self.policies
        yield from self.cluster_policies

    def store_of(self, template: Object) -> Store | None:
        """Return where templates of that kind (or those that a reference names) are kept."""
        kind = kind_of(template)
        return (self.templates.get(kind) or self.needed.get(kind)) if kind else None

    def template_of(self, binding: Object) -> Object | None:
        """Return the template that a binding stands for."""
        reference = binding["spec"]["resource"]
        store = self.store_of(reference)
        return store.get(Key(reference.get("namespace", ""), reference["name"])) if store else None

    def works_of(self, binding: Object) -> list[Object]:
        """Return the works of a binding that are not being deleted, also those for clusters that are gone."""
        found = (self.works.get(key) for key in sorted(self._works_of.get(key_of(binding), ())))
        return [item for item in found if item and not is_terminating(item)]

    def _work_changed(self, old: Object | None, new: Object | None) -> None:
        for work, note in ((old, set.discard), (new, set.add)):
            if work is not None:
                note(self._works_of.setdefault(binding_key(work), set()), key_of(work))
                if not self._works_of[binding_key(work)]:
                    del self._works_of[binding_key(work)]

    async def run(self, api: Api, *, synced: asyncio.Event) -> None:
        """Keep all stores in step until cancelled; *synced* is set once all have been filled."""
        informers = [Informer(api, store.kind.path, decode=decoder(store.kind), sink=store) for store in self.stores]
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run())
            for informer in informers:
                await informer.synced.wait()
            synced.set()


def decoder(kind: Kind) -> Callable[[bytes], Object]:
    """Return what decodes an object; lists of the API server's own kinds do not say what their items are."""
    identity = {"apiVersion": kind.api_version, "kind": kind.name}

    def decode(raw: bytes) -> Object:
        return identity | decode_object(raw)

    return decode
