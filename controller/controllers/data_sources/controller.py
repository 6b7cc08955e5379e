"""Data source controller: binds DataSourceClaims to DataSources, and locates data sets by plugins.

Each step is decided from the observed objects and can be repeated, so a crash at any write is repaired by the next
step. No finalizer is added; those of upstream's controller are removed from deleted objects. If the CRDs are not
installed, they are looked up periodically.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import msgspec
import structlog

from controller.api.data_sources import DataSet
from controller.api.keys import DATA_SOURCE_CLAIMS, DATA_SOURCES, RESOURCE_BINDINGS, Resource
from controller.cache.data_requirements import is_placed_by_karmada
from controller.cache.objects import CachedBinding, ObjectKey, TemplateKey
from controller.cache.store import Store
from controller.controllers.data_sources.affinity import affinity_patch
from controller.controllers.data_sources.claims import (
    LOCATING,
    ClaimIndex,
    ObservedClaim,
    ObservedSource,
    observe_claim,
    observe_source,
)
from controller.controllers.data_sources.locator import DataSourceDependencies, Locator
from controller.controllers.data_sources.status import Problem, claim_patch, finalizers_patch, source_patch
from controller.controllers.data_sources.work_queue import WorkQueue, run_worker
from controller.kube.client import Api
from controller.kube.collection import Collection
from controller.kube.errors import ApiError, Conflict, Forbidden, NotFound
from controller.kube.informer import Informer, WatchOptions, audited_informer
from controller.kube.timing import Backoff, Clock, wall_clock

_WRITERS = 8

#: Delay of the status of a source, so that many claims cause one write; and of the retry after a conflict.
_COLLECT_SECONDS = 1.0

_LOCATING = Problem(LOCATING, "its data are being located")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class _ClaimItem(NamedTuple):
    key: ObjectKey

    def __str__(self) -> str:
        return f"claim {'/'.join(self.key)}"


class _SourceItem(NamedTuple):
    name: str

    def __str__(self) -> str:
        return f"source {self.name}"


class _AffinityItem(NamedTuple):
    workload: TemplateKey

    def __str__(self) -> str:
        return f"affinity of {self.workload.kind} {self.workload.path}"


_Item = _ClaimItem | _SourceItem | _AffinityItem


class DataSourceController:
    """Watches claims and sources, and reconciles what changed."""

    def __init__(
        self,
        api: Api,
        store: Store,
        dependencies: DataSourceDependencies,
        *,
        watch_options: WatchOptions,
        clock: Clock = wall_clock,
    ) -> None:
        self.discovery_interval_seconds = 30.0
        """Interval of looking up missing CRDs."""
        self.synced = asyncio.Event()
        """Set when the claims are known, or that there can be none; no decision is made before."""
        self.informers: dict[str, Informer[Any]] = {}
        """The informers of claims and sources, by plural; no decision is made while one is not in sync."""
        self._api = api
        self._store = store
        self._dependencies = dependencies
        self._watch_options = watch_options
        self._clock = clock
        self.index = ClaimIndex()
        self._claims = Collection(observe_claim, self._claim_changed)
        self._sources = Collection(observe_source, self._source_changed, key=lambda _, name: name)
        self.locator = Locator(api, self.index, self._sources, dependencies, clock=clock)
        self.locator.on_result.append(self._on_result)
        self._items: WorkQueue[_Item] = WorkQueue()
        self._backoffs: dict[_Item, Backoff] = {}

    # -- running ---------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Watch and reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            await self._discover(group)
            for _ in range(_WRITERS):
                group.create_task(run_worker(self._items, self._reconcile))
            await self.locator.run()
        raise AssertionError("the controller runs until it is cancelled")

    def on_leading(self) -> None:
        """Reconcile everything after becoming the leader; what the former leader wrote last must be known."""
        for informer in self.informers.values():
            informer.catch_up()
        for key in self.index.claims:
            self._add(_ClaimItem(key))
        for name in self.index.sources:
            self._add(_SourceItem(name))
        for bindings in (self._store.bindings, self._store.cluster_bindings):
            for binding in bindings:
                self.on_binding(None, binding)

    def configure(self) -> None:
        """Apply a changed configuration."""
        self.locator.configure()
        for workload in tuple(self.index.workloads):
            self._require(workload)

    def on_binding(self, before: CachedBinding | None, after: CachedBinding | None) -> None:
        """Correct the affinity of a binding that Karmada has created, placed or applied again."""
        if after is None or (before is not None and _affinity_inputs(before) == _affinity_inputs(after)):
            return
        if not self.index.claims and not after.details.excludes_for_data:
            return
        required = self._store.data_requirement(after)
        if after.details.excludes_for_data or (required.clusters is not None and is_placed_by_karmada(after)):
            self._add(_AffinityItem(after.template))

    def on_clusters(self) -> None:
        """Correct the affinities after a cluster joined or left."""
        for workload in self.index.workloads:
            self._add(_AffinityItem(workload))

    def phases(self) -> Mapping[str, int]:
        """Return the number of claims in each phase."""
        counts = {"Pending": 0, "Bound": 0}
        for claim in self.index.claims.values():
            counts["Pending" if self.index.bound_source(claim) is None else "Bound"] += 1
        return counts

    async def _discover(self, group: asyncio.TaskGroup) -> None:
        """Start the informers once both CRDs are served."""
        backoff = Backoff(initial=0.5, maximum=15)
        while True:
            delay = self.discovery_interval_seconds
            try:
                for resource in (DATA_SOURCE_CLAIMS, DATA_SOURCES):
                    await self._api.list_page(resource.path, limit=1)
                break
            except (Forbidden, NotFound) as error:
                if isinstance(error, Forbidden):
                    log.warning("data sources not available", error=str(error), remedy="install the roles of the chart")
                self.synced.set()
            except ApiError as error:
                delay = backoff.next_delay(at_least=error.retry_after)
            await asyncio.sleep(delay)
        # Each sink takes what its own decode returns; a tuple cannot express these two types.
        sinks: tuple[tuple[Resource, Any], ...] = ((DATA_SOURCES, self._sources), (DATA_SOURCE_CLAIMS, self._claims))
        for resource, sink in sinks:
            informer = audited_informer(self._api, resource.path, sink, options=self._watch_options, is_optional=True)
            self.informers[resource.plural] = informer
            group.create_task(informer.run())
            await informer.synced.wait()
        self.synced.set()

    # -- event handlers of the informers -----------------------------------------

    def _claim_changed(self, before: ObservedClaim | None, after: ObservedClaim | None) -> None:
        self.index.claim_changed(before, after)
        for claim in (before, after):
            if claim is not None:
                self._require(claim.workload)
                self._add_source(claim.status.bound_data_source)
                source = self.index.source_of(claim.data_set)
                self._add_source(source.key if source is not None else "")
        if after is not None:
            self._add(_ClaimItem(after.key))

    def _source_changed(self, before: ObservedSource | None, after: ObservedSource | None) -> None:
        self.index.source_changed(before, after)
        concerned: dict[ObjectKey, ObservedClaim] = {}
        for source in (before, after):
            if source is not None:
                claims = (*self.index.claims_of(source.data_set), *self.index.claims_at(source.key))
                concerned.update((claim.key, claim) for claim in claims)
        for workload in dict.fromkeys(claim.workload for claim in concerned.values()):
            self._require(workload)
        for key in concerned:
            self._add(_ClaimItem(key))
        if after is not None:
            self._add_source(after.key)

    def _require(self, workload: TemplateKey) -> None:
        """Update what the claims of a workload require of its admission."""
        self._store.data_changed(workload, self.index.requirement(workload, self._dependencies.options().on_move))
        binding = self._store.binding_of(workload)
        if binding is not None:
            self.on_binding(None, binding)

    def _on_result(self, data_set: DataSet) -> None:
        """Write the statuses after a failed request, and once the settings of the plugins are known."""
        for claim in self.index.claims_of(data_set):
            if self.index.bound_source(claim) is None:
                self._add(_ClaimItem(claim.key))
        source = self.index.source_of(data_set)
        if source is not None:
            self._add_source(source.key)

    def _add_source(self, name: str) -> None:
        if name in self.index.sources:
            self._add(_SourceItem(name), seconds=_COLLECT_SECONDS)

    def _add(self, item: _Item, *, seconds: float = 0) -> None:
        if self._dependencies.may_write():
            self._items.add(item, seconds=seconds)

    # -- writes ------------------------------------------------------------------------

    async def _reconcile(self, item: _Item) -> None:
        """Write what *item* needs; retry after an error."""
        if not self._dependencies.may_write():
            return
        try:
            match item:
                case _ClaimItem():
                    await self._reconcile_claim(item.key)
                case _SourceItem():
                    await self._reconcile_source(item.name)
                case _AffinityItem():
                    await self._reconcile_affinity(item.workload)
        except NotFound:
            self._backoffs.pop(item, None)
        except Conflict:
            # It has changed; the informer delivers the new version.
            self._items.retry(item, _COLLECT_SECONDS)
        except ApiError as error:
            delay = self._backoffs.setdefault(item, Backoff(initial=2, maximum=30)).next_delay(
                at_least=error.retry_after
            )
            log.warning("data dependency not written", item=str(item), error=str(error), again_in=round(delay, 2))
            self._items.retry(item, delay)
        else:
            self._backoffs.pop(item, None)

    async def _reconcile_claim(self, key: ObjectKey) -> None:
        claim = self._claims.get(key)
        if claim is None:
            return
        if claim.deleting:
            await self._merge(DATA_SOURCE_CLAIMS, claim, finalizers_patch(claim))
            return
        source, problem = None, None
        if claim.violation:
            problem = Problem("Invalid", claim.violation)
        elif not self.locator.is_ready:
            return  # it is reconciled again when the settings of the plugins are known
        else:
            self.locator.request(claim.data_set)
            source = self.index.bound_source(claim) or self.locator.fresh_source(claim.data_set)
            problem = None if source is not None else self.locator.problem(claim.data_set) or _LOCATING
        patch = claim_patch(claim, source.key if source is not None else "", problem, self._clock())
        await self._merge(DATA_SOURCE_CLAIMS, claim, patch, subresource="/status")

    async def _reconcile_source(self, name: str) -> None:
        source = self._sources.get(name)
        if source is None:
            return
        if source.deleting:
            await self._merge(DATA_SOURCES, source, finalizers_patch(source))
            return
        is_unused = not self.index.is_claimed(source.data_set)
        # One that was made by hand waits for its first claim.
        was_used = source.status.bound_claims > 0 or source.located_at is not None
        if source.is_reclaimed and is_unused and was_used:
            await self.locator.delete(source)
            return
        problem = self.locator.problem(source.data_set)
        patch = source_patch(source, self.index.bound_to(name), problem, self._clock())
        await self._merge(DATA_SOURCES, source, patch, subresource="/status")

    async def _reconcile_affinity(self, workload: TemplateKey) -> None:
        """Let the affinity of a binding exclude the clusters without its data (C6)."""
        binding = self._store.binding_of(workload)
        if binding is None or not binding.namespace:
            return
        required = self._store.data_requirement(binding)
        if required.pending:
            return
        path = RESOURCE_BINDINGS.item_path(binding.namespace, binding.name)
        manifest = msgspec.json.decode(await self._api.get(path))
        has_data = required.clusters is not None and is_placed_by_karmada(binding)
        lacking = sorted(required.lacking) if has_data else None
        patch = affinity_patch(manifest, lacking, follows=required.requeue)
        if patch is not None:
            raw = await self._api.patch(path, msgspec.json.encode(patch))
            self._store.bindings.upsert(self._store.bindings.decode(raw))
            log.info("affinity changed", namespace=binding.namespace, name=binding.name, excluded=lacking)

    async def _merge(
        self,
        resource: Resource,
        seen: ObservedClaim | ObservedSource,
        patch: dict[str, Any] | None,
        *,
        subresource: str = "",
    ) -> None:
        """Write *patch*, if there is one, and add the stored object to the cache."""
        if patch is None:
            return
        namespace, name = seen.key if isinstance(seen, ObservedClaim) else ("", seen.key)
        path = resource.item_path(namespace, name) + subresource
        raw = await self._api.patch(path, msgspec.json.encode(patch), kind="merge")
        if isinstance(seen, ObservedClaim):
            self._claims.upsert(observe_claim(raw))
        else:
            self._sources.upsert(observe_source(raw))


def _affinity_inputs(binding: CachedBinding) -> tuple[object, ...]:
    return binding.uid, binding.placement, bool(binding.targets), binding.details.excludes_for_data
