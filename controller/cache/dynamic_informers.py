"""Creates the informers of all built-in kinds, and runs those of the kinds that the configuration names.

Discovery of a kind that the API server does not serve, or no longer, is retried; such a kind does not block the others.
"""

import asyncio
from collections.abc import Iterable, MutableMapping
from functools import partial
from typing import Any, NoReturn

import msgspec
import structlog

from controller.api.keys import (
    CLUSTER_RESOURCE_BINDINGS,
    CLUSTERS,
    JOBS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_BINDINGS,
    Resource,
)
from controller.cache.objects import VOLCANO_JOB, BindingKey, CachedBinding, group_kind
from controller.cache.store import Store
from controller.engine.state.clusters import ApiKind
from controller.kube.client import Api
from controller.kube.collection import Collection
from controller.kube.errors import ApiError, Forbidden, NotFound
from controller.kube.informer import Informer, WatchOptions, audited_informer, never_known
from controller.kube.timing import Backoff
from controller.kube.watch_events import WatchEvent

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class _ApiResource(msgspec.Struct):
    """One resource of an API group, as discovery lists it."""

    name: str
    kind: str


class _ApiResourceList(msgspec.Struct):
    resources: list[_ApiResource] = msgspec.field(default_factory=list)


_API_RESOURCES = msgspec.json.Decoder(_ApiResourceList)


class DynamicInformers:
    """Starts and stops one informer for each kind; *informers* contains the running ones by plural and group."""

    def __init__(
        self, api: Api, store: Store, informers: MutableMapping[str, Informer[Any]], *, options: WatchOptions
    ) -> None:
        self.discovery_interval_seconds = 15.0
        """Interval at which kinds that are not served are looked up again."""
        self.synced = asyncio.Event()
        """Set while it is known of every kind whether it is served."""
        self._api = api
        self._store = store
        self._informers = informers
        self._options = options
        self._wanted: tuple[ApiKind, ...] = ()
        self._running: dict[ApiKind, tuple[str, asyncio.Task[NoReturn]]] = {}
        self._unserved: set[ApiKind] = set()
        self._wake = asyncio.Event()
        self._backoff = Backoff(initial=0.5, maximum=15)

    def set_kinds(self, kinds: Iterable[ApiKind]) -> None:
        """Set the kinds of watched templates; Volcano Jobs are always watched."""
        self._wanted = tuple(kind for kind in kinds if group_kind(kind) != VOLCANO_JOB)
        self._unserved.intersection_update(self._wanted)
        if any(kind not in self._running for kind in self._wanted):
            self.synced.clear()
        self._wake.set()

    def look_up(self) -> None:
        """Look up the kinds that are not in sync now: those that are no longer served or permitted are stopped."""
        self._wake.set()

    async def run(self) -> NoReturn:
        """Start and stop informers as the set of kinds changes, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                self._stop_unwanted()
                await self._stop_unserved()
                await self._start_missing(group)
                missing = self._unserved or self._unsynced or not self.synced.is_set()
                timeout = self.discovery_interval_seconds if self.synced.is_set() else self._backoff.next_delay()
                try:
                    async with asyncio.timeout(timeout if missing else None):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        raise AssertionError("informers run until they are cancelled")

    @property
    def _unsynced(self) -> list[ApiKind]:
        """The kinds that are being listed, or cannot be listed."""
        return [kind for kind, (name, _) in self._running.items() if not self._informers[name].is_synced]

    def _stop_unwanted(self) -> None:
        """Stop the informers of kinds that are no longer configured."""
        for kind in [kind for kind in self._running if kind not in self._wanted]:
            self._stop(kind)

    async def _stop_unserved(self) -> None:
        """Stop the informers that will not get in sync, because their kinds are no longer served or permitted."""
        for kind in self._unsynced:
            if await self._find_path(kind) == "":
                self._stop(kind)

    def _stop(self, kind: ApiKind) -> None:
        name, task = self._running.pop(kind)
        task.cancel()
        del self._informers[name]
        self._store.forget_templates(kind)
        log.info("template watch stopped", kind=kind.kind, group_version=kind.group_version)

    async def _start_missing(self, group: asyncio.TaskGroup) -> None:
        """Start the missing informers, of the kinds that are served."""
        wanted, is_known = self._wanted, True
        for kind in [kind for kind in wanted if kind not in self._running]:
            path = await self._find_path(kind)
            if path:
                self._watch(group, kind, path)
            is_known = is_known and path is not None
        if is_known and wanted == self._wanted:
            self._backoff.reset()
            self.synced.set()

    async def _find_path(self, kind: ApiKind) -> str | None:
        """Return the path at which a kind can be listed, empty if it cannot, ``None`` if that is unknown."""
        try:
            path = await listable_path(self._api, kind)
        except (Forbidden, NotFound) as error:
            self._log_unavailable(kind, str(error))
            return ""
        except (ApiError, msgspec.MsgspecError) as error:
            log.warning("discovery failed", kind=kind.kind, group_version=kind.group_version, error=str(error))
            return None
        if not path:
            self._log_unavailable(kind, "it is not served")
        return path

    def _log_unavailable(self, kind: ApiKind, error: str) -> None:
        """Log once that all workloads of a kind stay pending until the problem is fixed."""
        if kind not in self._unserved:
            self._unserved.add(kind)
            log.error("managed kind unavailable", kind=kind.kind, group_version=kind.group_version, error=error)

    def _watch(self, group: asyncio.TaskGroup, kind: ApiKind, path: str) -> None:
        sink = self._store.templates(kind)
        informer = audited_informer(self._api, path, sink, options=self._options)
        name = f"{path.rpartition('/')[2]}.{kind.group_version.rpartition('/')[0]}".rstrip(".")
        self._informers[name] = informer
        self._running[kind] = name, group.create_task(informer.run())
        self._unserved.discard(kind)
        log.info("template watch started", kind=kind.kind, group_version=kind.group_version)


async def served_path(api: Api, kind: ApiKind) -> str:
    """Return the path at which the API server lists *kind*, empty if the server does not serve it."""
    group = f"/{'apis' if '/' in kind.group_version else 'api'}/{kind.group_version}"
    try:
        served = _API_RESOURCES.decode(await api.get(group))
    except NotFound:
        return ""
    return next(
        (
            f"{group}/{resource.name}"
            for resource in served.resources
            if resource.kind == kind.kind and "/" not in resource.name
        ),
        "",
    )


async def listable_path(api: Api, kind: ApiKind) -> str:
    """Return the path at which a kind can be listed, empty if it is not served; raises `ApiError` if it cannot.

    An informer would wait for ever where listing is not permitted.
    """
    path = await served_path(api, kind)
    if path:
        await api.list_page(path, limit=1)
    return path


Informers = MutableMapping[str, Informer[Any]]
"""Informers by the plural of their resource, which metrics use as a label."""

#: Informers of objects that are decoded in the same way with every configuration.
_INDEPENDENT = frozenset(kind.plural for kind in (JOBS, QUEUES, CLUSTERS, PRIORITY_CLASSES))


def build_informers(api: Api, store: Store, options: WatchOptions) -> Informers:
    """Return an informer for each kind that decisions depend on."""
    # Each sink takes what its own decode returns; a tuple cannot express these six types.
    sinks: tuple[tuple[Resource, Any], ...] = (
        (RESOURCE_BINDINGS, store.bindings),
        (CLUSTER_RESOURCE_BINDINGS, store.cluster_bindings),
        (JOBS, store.jobs),
        (QUEUES, store.queues),
        (CLUSTERS, store.clusters),
        (PRIORITY_CLASSES, store.priority_classes),
    )
    written = {RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS}
    return {
        kind.plural: audited_informer(
            api,
            kind.path,
            sink,
            options=options,
            is_known=partial(_is_own_write, sink) if kind in written else never_known,
        )
        for kind, sink in sinks
    }


def relist_configured(informers: Informers) -> None:
    """List again what the managed kinds of the configuration decide how to decode: bindings and their templates."""
    for name, informer in informers.items():
        if name not in _INDEPENDENT:
            informer.relist()


def _is_own_write(bindings: Collection[CachedBinding], event: WatchEvent) -> bool:
    """Whether the cache already has this version, from the response to a write of ours."""
    version = event.meta.resource_version
    known = bindings.get(BindingKey(event.meta.namespace, event.meta.name))
    return known is not None and version.isdecimal() and known.resource_version >= int(version)
