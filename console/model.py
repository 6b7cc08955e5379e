"""The state that the pages show: own read-only watches, and one engine that plans the next cycle after changes.

Decisions of the plan are shown, never written: after each plan the changed workloads are sent to the engine again as
they were observed.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import msgspec
import structlog

from console.history import History
from console.usage_history import UsageHistory
from controller.api.configuration import VolcanoGlobalConfiguration
from controller.api.hyperjobs import HYPERJOB_RESOURCES
from controller.api.keys import DATA_SOURCE_CLAIMS, DATA_SOURCES, Resource
from controller.cache.dynamic_informers import DynamicInformers, build_informers, relist_configured, served_path
from controller.cache.store import Store
from controller.cli.input.live import active_configuration, read_run_times
from controller.cli.input.snapshot import ActiveConfiguration, ConfigurationSource, Snapshot, plan_snapshot
from controller.controllers.data_sources.claims import (
    ClaimIndex,
    ObservedClaim,
    ObservedSource,
    observe_claim,
    observe_source,
)
from controller.controllers.hyperjob.children import cached_hyperjob_of
from controller.controllers.hyperjob.observed import ObservedHyperJob, decode_hyperjob
from controller.engine.engine import Engine
from controller.engine.state.clusters import ApiKind
from controller.engine.state.hierarchy import ROOT, QueueName
from controller.engine.state.workloads import WorkloadState
from controller.forecast.profiles import with_run_time
from controller.forecast.run_times import RunTimes
from controller.kube.client import Api
from controller.kube.collection import Collection
from controller.kube.errors import ApiError
from controller.kube.informer import Informer, WatchOptions
from controller.kube.timing import wall_clock

#: An update takes at most this part of one core: the interval between updates is so many times the last duration.
_DUTY = 20
#: Updates without a change, because forecasts and backoffs depend on the time, in seconds.
_IDLE_SECONDS = 30.0
_CONFIGURATION_SECONDS = 10.0
_DISCOVERY_SECONDS = 30.0
_SYNC_POLL_SECONDS = 0.2

#: Usage over time: one sample in so many seconds, and so many samples, which are four hours.
_SAMPLE_SECONDS = 60
_SAMPLES = 240

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(slots=True)
class Index:
    """What the pages look up in a snapshot, computed once for each."""

    namespaces: dict[str, set[QueueName]] = field(default_factory=dict)
    """The queues that the workloads of a namespace name."""
    oldest: dict[QueueName, int] = field(default_factory=dict)
    """When the oldest pending workload of a queue and the queues below it was created, in milliseconds."""


class Model:
    """Watches the control plane and holds the newest snapshot; the event handlers of ``on_update`` must not block."""

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        refresh_seconds: float,
        options: WatchOptions | None = None,
        history: History | None = None,
    ) -> None:
        self.on_update: list[Callable[[], None]] = []
        self.last_error: str | None = None
        self.history = history or History()
        """Past decisions, as far as they were logged."""
        self.usage = UsageHistory(_SAMPLES)
        self._api = api
        self._namespace = namespace
        self._refresh_seconds = refresh_seconds
        self._options = options or WatchOptions()
        self.configuration = ActiveConfiguration(VolcanoGlobalConfiguration(), ConfigurationSource.DEFAULTS)
        self.is_configuration_known = True
        """Whether the configuration of the controller could be read last."""
        self.store = Store(self.configuration.values)
        self.informers = build_informers(api, self.store, self._options)
        self._kinds = DynamicInformers(api, self.store, self.informers, options=self._options)
        self._kinds.set_kinds(self.store.kinds)
        self.hyperjobs = {resource: self._new_collection(resource) for resource in HYPERJOB_RESOURCES}
        self._claims = ClaimIndex()
        self._run_times = RunTimes()
        self._engine = Engine()
        self._snapshot: Snapshot | None = None
        self._index: Index | None = None
        self._wake = asyncio.Event()
        self.store.on_change.append(self._wake.set)
        self.use_run_times(self._run_times)

    def use_run_times(self, run_times: RunTimes) -> None:
        """Use *run_times* for expected ends.

        As in the controller, a pending workload gets a new one when it changes.
        """
        are_first = run_times.knows_all and not self._run_times.knows_all
        self._run_times = run_times
        self.store.with_run_time = partial(with_run_time, self.store, run_times)
        if are_first:
            self.store.mark_all_changed()

    def _new_collection(self, resource: Resource) -> Collection[ObservedHyperJob]:
        return Collection(partial(decode_hyperjob, resource=resource), self._hyperjob_changed)

    def _hyperjob_changed(self, before: ObservedHyperJob | None, after: ObservedHyperJob | None) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self.store.hyperjob_changed(before.uid, None)
        if after is not None:
            self.store.hyperjob_changed(after.uid, cached_hyperjob_of(after))
        self._wake.set()

    def claim_changed(self, before: ObservedClaim | None, after: ObservedClaim | None) -> None:
        """Let the workloads of a DataSourceClaim require its data (C6)."""
        self._claims.claim_changed(before, after)
        self._require_data(claim for claim in (before, after) if claim is not None)

    def source_changed(self, before: ObservedSource | None, after: ObservedSource | None) -> None:
        """Let the workloads of all claims of a DataSource require its clusters."""
        self._claims.source_changed(before, after)
        for name in {source.key for source in (before, after) if source is not None}:
            self._require_data(self._claims.claims_at(name))

    def _require_data(self, claims: Iterable[ObservedClaim]) -> None:
        on_move = self.configuration.values.data_sources.on_move
        for workload in {claim.workload for claim in claims}:
            self.store.data_changed(workload, self._claims.requirement(workload, on_move))

    async def read(self, path: str) -> bytes:
        """Return one object of the control plane as JSON; raise `ApiError`."""
        return await self._api.get(path)

    @property
    def snapshot(self) -> Snapshot | None:
        """Return the newest snapshot; ``None`` before the first one."""
        return self._snapshot

    @property
    def index(self) -> Index:
        """Return the index of the newest snapshot."""
        if self._index is None:
            self._index = self._new_index()
        return self._index

    def reason_not_ready(self) -> str | None:
        """Return why there are no pages yet, or are none any more."""
        for name, informer in self.informers.items():
            if not informer.synced.is_set():
                return f"{name} not listed yet"
        return self.last_error or ("no plan was made yet" if self._snapshot is None else None)

    @property
    def notice(self) -> str:
        """Return why the next cycle of the pages may not be that of the controller, empty while it should be."""
        if self.is_configuration_known:
            return ""
        is_default = self.configuration.source is ConfigurationSource.DEFAULTS
        used = "the defaults" if is_default else "the one that was read last"
        return f"The configuration of the controller cannot be read: pages use {used}. The console's log says why."

    @property
    def _is_synced(self) -> bool:
        return self._kinds.synced.is_set() and all(informer.synced.is_set() for informer in self.informers.values())

    async def run(self) -> NoReturn:
        """Watch and refresh until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poll_configuration())
            for informer in self.informers.values():
                group.create_task(informer.run())
            group.create_task(self._kinds.run())
            for resource, hyperjobs in self.hyperjobs.items():
                group.create_task(self._watch_when_served(resource, hyperjobs, self.store.expect_hyperjobs))
            sources, claims = (
                Collection(observe_source, self.source_changed),
                Collection(observe_claim, self.claim_changed),
            )
            group.create_task(self._watch_when_served(DATA_SOURCES, sources))
            group.create_task(self._watch_when_served(DATA_SOURCE_CLAIMS, claims))
            group.create_task(self._refresh_after_changes())
        raise AssertionError("the tasks run until they are cancelled")

    async def _refresh_after_changes(self) -> NoReturn:
        while not self._is_synced:  # noqa: ASYNC110 -- it depends on several events
            await asyncio.sleep(_SYNC_POLL_SECONDS)
        while True:
            self._wake.clear()
            began = time.monotonic()
            try:
                self.refresh(wall_clock())
            except Exception as error:  # noqa: BLE001 -- the one outer guard: a failed update must not end the console
                log.error("update failed", error=type(error).__name__)  # noqa: TRY400 -- the trace may have names
                self.last_error = f"the last update failed with {type(error).__name__}"
                self._engine = Engine()
                self.store.configure(self.configuration.values)
                self.store.mark_all_changed()
            took = time.monotonic() - began
            await asyncio.sleep(max(self._refresh_seconds, _DUTY * took))
            with suppress(TimeoutError):
                async with asyncio.timeout(_IDLE_SECONDS):
                    await self._wake.wait()

    def refresh(self, now: int) -> None:
        """Update the snapshot: apply the changes and plan the next cycle."""
        self.store.sync_to(self._engine, now)
        snapshot = plan_snapshot(self.store, self._engine, now, self.configuration, self._run_times)
        self.store.mark_changed(snapshot.plan.originals)
        self._snapshot, self._index, self.last_error = snapshot, None, None
        if not self.usage.times or now >= self.usage.times[-1] + _SAMPLE_SECONDS * 1000:
            self.usage.append(now, snapshot.current.queues)
        for handler in self.on_update:
            handler()

    def _new_index(self) -> Index:
        index = Index()
        if self._snapshot is None:
            return index
        nodes = self._snapshot.shares.quota.tree.nodes
        for workload in self._snapshot.observed.values():
            index.namespaces.setdefault(workload.namespace, set()).add(workload.queue)
            if workload.state is WorkloadState.PENDING and workload.created_at:
                known = index.oldest.get(workload.queue)
                if known is None or workload.created_at < known:
                    index.oldest[workload.queue] = workload.created_at
        for queue, at in list(index.oldest.items()):
            node = nodes.get(queue)
            for name in [ancestor.name for ancestor in node.path()][1:] if node else [ROOT]:
                index.oldest[name] = min(at, index.oldest.get(name, at))
        return index

    async def _poll_configuration(self) -> NoReturn:
        """Follow the configuration that the controller publishes, and the run times that it learns."""
        known = "", ""
        while True:
            problems = await self._read_configuration(), await self._read_run_times()
            if problems[0] and problems[0] != known[0]:
                log.warning("configuration not read", error=problems[0], used=self.configuration.source)
            if problems[1] and problems[1] != known[1]:
                log.warning("run times not read", error=problems[1])
            known = problems
            await asyncio.sleep(_CONFIGURATION_SECONDS)

    async def _read_configuration(self) -> str:
        """Use the published configuration; return why it is not known, empty where it is."""
        try:
            configuration, problem = await active_configuration(self._api, self._namespace)
        except ApiError as error:
            configuration, problem = self.configuration, str(error)
        self.is_configuration_known = not problem
        if not problem and configuration.revision != self.configuration.revision:
            self.configuration = configuration
            self._require_data(self._claims.claims.values())
            if self.store.configure(configuration.values):
                self._kinds.set_kinds(self.store.kinds)
                relist_configured(self.informers)
        return problem

    async def _read_run_times(self) -> str:
        """Use the run times that the controller stored; return why they were not read."""
        try:
            self.use_run_times(await read_run_times(self._api, self._namespace) or RunTimes())
        except ApiError as error:
            return str(error)
        return ""

    async def _watch_when_served(
        self, resource: Resource, sink: Collection[Any], on_served: Callable[[], None] | None = None
    ) -> NoReturn:
        """Watch *resource* once its CRD is installed, after calling *on_served*."""
        informer: Informer[Any] = Informer(
            self._api, resource.path, decode=sink.decode, sink=sink, options=self._options
        )
        while True:
            with suppress(ApiError, msgspec.MsgspecError):
                if await served_path(self._api, ApiKind(resource.api_version, resource.kind)):
                    if on_served is not None:
                        on_served()
                    await informer.run()
            await asyncio.sleep(_DISCOVERY_SECONDS)
