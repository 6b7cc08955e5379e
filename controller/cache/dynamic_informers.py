"""Watches the templates of further gated kinds, as long as the configuration names them.

A kind that the API server does not serve is looked for now and then; it keeps
nobody else from being admitted.
"""

import asyncio
from collections.abc import Iterable, MutableMapping
from typing import Any, NoReturn

import msgspec
import structlog

from controller.backoff import Backoff
from controller.cache.informer import Informer, WatchOptions
from controller.cache.objects import VOLCANO_JOB, group_kind
from controller.cache.store import Store
from controller.engine.clusters import ApiKind
from controller.kube import Api, ApiError, Forbidden, NotFound

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class _ApiResource(msgspec.Struct):
    """One resource of an API group, as the server tells it."""

    name: str
    kind: str


class _ApiResourceList(msgspec.Struct):
    resources: list[_ApiResource] = msgspec.field(default_factory=list)


_API_RESOURCES = msgspec.json.Decoder(_ApiResourceList)


class DynamicInformers:
    """Starts and ends an informer for each kind; *informers* has those that run, by plural and group."""

    def __init__(
        self, api: Api, store: Store, informers: MutableMapping[str, Informer[Any]], *, pace: WatchOptions
    ) -> None:
        self.discover_seconds = 15.0
        """How often kinds are looked for that are not served."""
        self.synced = asyncio.Event()
        """Set while it is known of every kind whether there are templates to wait for."""
        self._api = api
        self._store = store
        self._informers = informers
        self._pace = pace
        self._wanted: tuple[ApiKind, ...] = ()
        self._running: dict[ApiKind, tuple[str, asyncio.Task[NoReturn]]] = {}
        self._unserved: set[ApiKind] = set()
        self._wake = asyncio.Event()
        self._backoff = Backoff(initial=0.5, maximum=15)

    def want(self, kinds: Iterable[ApiKind]) -> None:
        """Watch the templates of these kinds from now on, and of no others; Volcano Jobs are watched anyway."""
        self._wanted = tuple(kind for kind in kinds if group_kind(kind) != VOLCANO_JOB)
        self._unserved.intersection_update(self._wanted)
        if any(kind not in self._running for kind in self._wanted):
            self.synced.clear()
        self._wake.set()

    async def run(self) -> NoReturn:
        """Keep the informers as they are wanted until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                self._end()
                await self._start(group)
                missing = self._unserved or not self.synced.is_set()
                rest = self.discover_seconds if self.synced.is_set() else self._backoff.next_delay()
                try:
                    async with asyncio.timeout(rest if missing else None):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        raise AssertionError("kinds are watched until we are cancelled")

    def _end(self) -> None:
        """End the informers that nobody wants any more."""
        for kind in [kind for kind in self._running if kind not in self._wanted]:
            name, task = self._running.pop(kind)
            task.cancel()
            del self._informers[name]
            self._store.forget_templates(kind)
            log.info("templates not watched any more", kind=kind.kind, group_version=kind.group_version)

    async def _start(self, group: asyncio.TaskGroup) -> None:
        """Start the informers that are missing, of the kinds that are served."""
        wanted, is_known = self._wanted, True
        for kind in [kind for kind in wanted if kind not in self._running]:
            try:
                plural = await self._plural(kind)
                if plural:
                    # Without the right to list it, nobody else shall wait for this kind.
                    await self._api.list_page(f"{_group_path(kind)}/{plural}", limit=1)
            except (Forbidden, NotFound) as error:
                self._complain(kind, str(error))
                continue
            except (ApiError, msgspec.MsgspecError) as error:
                log.warning("discovery failed", kind=kind.kind, group_version=kind.group_version, error=str(error))
                is_known = False
                continue
            if plural:
                self._watch(group, kind, plural)
            else:
                self._complain(kind, "it is not served")
        if is_known and wanted == self._wanted:
            self._backoff.reset()
            self.synced.set()

    def _complain(self, kind: ApiKind, trouble: str) -> None:
        """Say once that all workloads of a kind wait until somebody puts this right."""
        if kind not in self._unserved:
            self._unserved.add(kind)
            log.error("gated kind unreadable", kind=kind.kind, group_version=kind.group_version, trouble=trouble)

    def _watch(self, group: asyncio.TaskGroup, kind: ApiKind, plural: str) -> None:
        sink = self._store.templates(kind)
        path = f"{_group_path(kind)}/{plural}"
        informer = Informer(self._api, path, decode=sink.decode, sink=sink, pace=self._pace)
        name = f"{plural}.{kind.group_version.rpartition('/')[0]}".rstrip(".")
        self._informers[name] = informer
        self._running[kind] = name, group.create_task(informer.run())
        self._unserved.discard(kind)
        log.info("templates watched", kind=kind.kind, group_version=kind.group_version)

    async def _plural(self, kind: ApiKind) -> str:
        """Return what the server calls the objects of *kind* in paths; nothing where it does not serve them."""
        try:
            served = _API_RESOURCES.decode(await self._api.get(_group_path(kind)))
        except NotFound:
            return ""
        return next((each.name for each in served.resources if each.kind == kind.kind and "/" not in each.name), "")


def _group_path(kind: ApiKind) -> str:
    return f"/{'apis' if '/' in kind.group_version else 'api'}/{kind.group_version}"
