"""Locates the data sets of claims by plugins, and writes the answers as DataSources.

A data set is requested once, however many claims name it: not while its source is fresh, and after a failure not before
a growing delay has passed.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

import aiohttp
import msgspec
import structlog

from controller.api.configuration import DataSources
from controller.api.data_sources import DataSet
from controller.api.keys import CONFIG_MAPS, DATA_PLUGINS_NAME, DATA_SOURCES
from controller.api.meta import ConfigMap
from controller.controllers.data_sources import amoro
from controller.controllers.data_sources.claims import ClaimIndex, ObservedSource, observe_source
from controller.controllers.data_sources.plugins import LocateError, Plugins
from controller.controllers.data_sources.status import Problem, located_patch, new_source
from controller.controllers.data_sources.work_queue import WorkQueue, run_worker
from controller.kube.client import Api
from controller.kube.collection import Collection
from controller.kube.errors import ApiError, Forbidden, NotFound
from controller.kube.timing import Backoff, Clock

_WORKERS = 8

#: Longest delay before a data set is requested again after a failure, in seconds.
_MAX_BACKOFF_SECONDS = 600.0

#: Interval of reading the settings of the plugins, and the same until they were read once, in seconds.
_SETTINGS_SECONDS = 30.0
_FIRST_SETTINGS_SECONDS = 1.0

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


def _ignore(_: str, __: str, ___: float) -> None:
    """Ignore a request to a plugin; the default callback."""


@dataclass(frozen=True, slots=True)
class DataSourceDependencies:
    """The parts of the controller that the data source controller needs."""

    may_write: Callable[[], bool]
    options: Callable[[], DataSources]
    plugins_namespace: str
    """Namespace of the ConfigMap with the settings of the plugins."""
    count_request: Callable[[str, str, float], None] = _ignore
    """Called with the system, the outcome and the duration of a request to a plugin."""


@dataclass(slots=True)
class _Lookup:
    """A data set that is being located."""

    problem: Problem | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(initial=1, maximum=_MAX_BACKOFF_SECONDS))
    retry_at: float = 0
    """Time of the event loop before which it is not requested again."""
    clusters: tuple[str, ...] | None = None
    """The answer of the plugin, until it is written."""


class Locator:
    """Locates the requested data sets while ``run`` is running."""

    def __init__(
        self,
        api: Api,
        index: ClaimIndex,
        sources: Collection[ObservedSource],
        dependencies: DataSourceDependencies,
        *,
        clock: Clock,
    ) -> None:
        self.on_result: list[Callable[[DataSet], None]] = []
        """Called with a data set that could not be located; a located one has a changed source."""
        self.plugins = Plugins({amoro.NAME: lambda options: amoro.AmoroPlugin(options, self._open_session)})
        self.plugins.set_static(dependencies.options().static)
        self._api = api
        self._index = index
        self._sources = sources
        self._dependencies = dependencies
        self._clock = clock
        self._queue: WorkQueue[DataSet] = WorkQueue()
        self._lookups: dict[DataSet, _Lookup] = {}
        self._outdated: set[DataSet] = set()
        """Data sets that were located with other settings."""
        self._session: aiohttp.ClientSession | None = None
        self._settings_read = asyncio.Event()

    async def run(self) -> NoReturn:
        """Locate data sets until cancelled."""
        async with (
            aiohttp.ClientSession(trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as self._session,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(_WORKERS):
                group.create_task(run_worker(self._queue, self._locate))
            while True:
                if self._dependencies.may_write():
                    await self._read_settings()
                await asyncio.sleep(_SETTINGS_SECONDS if self.is_ready else _FIRST_SETTINGS_SECONDS)
        raise AssertionError("the locator runs until it is cancelled")

    @property
    def is_ready(self) -> bool:
        """Whether the settings of the plugins are known."""
        return self._settings_read.is_set()

    def request(self, data_set: DataSet) -> None:
        """Locate *data_set*, unless its source is fresh or a failure is recent."""
        self._queue.add(data_set)

    def problem(self, data_set: DataSet) -> Problem | None:
        """Return why *data_set* could not be located the last time, ``None`` if it could or was not requested yet."""
        lookup = self._lookups.get(data_set)
        return lookup.problem if lookup is not None else None

    def fresh_source(self, data_set: DataSet) -> ObservedSource | None:
        """Return the source of *data_set* if it counts without a request."""
        source = self._index.source_of(data_set)
        return source if source is not None and self._seconds_fresh(source) > 0 else None

    def configure(self) -> None:
        """Apply a changed configuration."""
        self._locate_again(self.plugins.set_static(self._dependencies.options().static))
        # With a shorter time to live, sources are stale before the time that was planned for them.
        for data_set in self._index.data_sets:
            self.request(data_set)

    async def delete(self, source: ObservedSource) -> None:
        """Delete this version of *source*; raise `ApiError`."""
        only = {"preconditions": {"uid": source.uid, "resourceVersion": str(source.resource_version)}}
        await self._api.delete(DATA_SOURCES.item_path("", source.key), msgspec.json.encode(only))
        log.info("data source deleted", name=source.key)

    # -- settings --------------------------------------------------------------

    async def _read_settings(self) -> None:
        """Read the settings of the plugins; without the ConfigMap, or permission to read it, there are none."""
        path = CONFIG_MAPS.item_path(self._dependencies.plugins_namespace, DATA_PLUGINS_NAME)
        texts: dict[str, str] = {}
        try:
            texts = msgspec.json.decode(await self._api.get(path), type=ConfigMap).data
        except NotFound:
            pass
        except Forbidden as error:
            log.warning(
                "plugin settings not read", path=path, error=str(error), remedy="install the roles of the chart"
            )
        except (ApiError, msgspec.MsgspecError) as error:
            log.warning("plugin settings not read", path=path, error=str(error))
            return
        changed = self.plugins.configure(texts)
        if self.is_ready:
            self._locate_again(changed)
            return
        self._settings_read.set()
        for data_set in self._index.data_sets:
            self._notify(data_set)
            # The sources of bound claims are located again in time, too.
            self.request(data_set)

    def _locate_again(self, systems: frozenset[str]) -> None:
        """Request the data sets of *systems* again, because their settings have changed."""
        if not systems:
            return
        for data_set in self._index.data_sets:
            if data_set.system in systems:
                self._lookups.pop(data_set, None)
                self.request(data_set)
        known = {source.data_set for source in self._index.sources.values()}
        located = {data_set for data_set in known if data_set.system in systems and self.plugins.serves(data_set)}
        self._outdated = located | (self._outdated & known)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise AssertionError("data sets are located while the locator runs")
        return self._session

    # -- lookups ---------------------------------------------------------------

    def _seconds_fresh(self, source: ObservedSource) -> float:
        """Return how long *source* still counts without a request; one that no plugin serves always does."""
        static = self.plugins.static_clusters(source.data_set)
        if static is not None:
            return float("inf") if static == source.clusters else 0
        if not self.plugins.serves(source.data_set):
            return float("inf")
        if source.located_at is None or source.data_set in self._outdated:
            return 0
        to_live = self._dependencies.options().time_to_live.total_seconds()
        # A time in the future is wrong, and counts as now.
        return to_live - max(self._clock() - source.located_at, 0) / 1000

    async def _locate(self, data_set: DataSet) -> None:
        """Process one data set, and add it again for the time when it must be requested next."""
        await self._settings_read.wait()
        source = self._index.source_of(data_set)
        if not self._index.is_claimed(data_set) or not self._dependencies.may_write():
            self._lookups.pop(data_set, None)
            return
        fresh = self._seconds_fresh(source) if source is not None else 0
        if fresh <= 0:
            fresh = await self._locate_stale(data_set, source)
        else:
            self._lookups.pop(data_set, None)
        if fresh < float("inf"):
            self._queue.add(data_set, seconds=max(fresh, 1))

    async def _locate_stale(self, data_set: DataSet, source: ObservedSource | None) -> float:
        """Request a data set and write the answer; return after how many seconds it must be requested next."""
        lookup = self._lookups.setdefault(data_set, _Lookup())
        wait = lookup.retry_at - asyncio.get_running_loop().time()
        if wait > 0:
            return wait
        try:
            lookup.clusters = lookup.clusters or await self._ask(data_set)
            if self._is_obsolete(data_set, lookup):
                return 0
            if self._dependencies.may_write():
                await self._write(data_set, source, lookup.clusters)
        except LocateError as error:
            if self._is_obsolete(data_set, lookup):
                return 0
            lookup.problem = Problem(error.reason, str(error))
            log.warning("data not located", system=data_set.system, data=data_set.name, error=str(error))
            if error.is_final and self._dependencies.may_write():
                await self._forget(data_set)
            self._notify(data_set)
        except ApiError as error:
            log.warning("data source not written", system=data_set.system, data=data_set.name, error=str(error))
        else:
            self._lookups.pop(data_set, None)
            self._outdated.discard(data_set)
            return self._dependencies.options().time_to_live.total_seconds()
        delay = lookup.backoff.next_delay()
        lookup.retry_at = asyncio.get_running_loop().time() + delay
        return delay

    def _is_obsolete(self, data_set: DataSet, lookup: _Lookup) -> bool:
        """Return whether the settings have changed since *lookup* began, so that its answer does not count."""
        return self._lookups.get(data_set) is not lookup

    async def _ask(self, data_set: DataSet) -> tuple[str, ...]:
        began, outcome = asyncio.get_running_loop().time(), "Located"
        try:
            return await self.plugins.locate(data_set)
        except LocateError as error:
            outcome = error.reason
            raise
        finally:
            system = data_set.system if data_set.system in self.plugins.systems else ""
            self._dependencies.count_request(system, outcome, asyncio.get_running_loop().time() - began)

    async def _write(self, data_set: DataSet, source: ObservedSource | None, clusters: tuple[str, ...]) -> None:
        now = self._clock()
        if source is None:
            policy = self._dependencies.options().reclaim_policy
            document = new_source(data_set, clusters, reclaim_policy=policy, now=now)
            raw = await self._api.create(DATA_SOURCES.path, msgspec.json.encode(document))
        else:
            path, patch = DATA_SOURCES.item_path("", source.key), located_patch(source, clusters, now)
            raw = await self._api.patch(path, msgspec.json.encode(patch), kind="merge")
        log.info("data located", system=data_set.system, data=data_set.name, clusters=list(clusters))
        self._sources.upsert(observe_source(raw))

    async def _forget(self, data_set: DataSet) -> None:
        """Delete the source of a data set that its system does not have, so that its claims are not bound."""
        source = self._index.source_of(data_set)
        if source is None:
            return
        try:
            await self.delete(source)
        except ApiError as error:
            log.warning("data source not deleted", name=source.key, error=str(error))

    def _notify(self, data_set: DataSet) -> None:
        for handler in self.on_result:
            handler(data_set)
