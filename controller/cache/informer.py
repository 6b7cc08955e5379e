"""Keeps a sink in step with one collection of the API server: list, then watch.

It keeps no objects and knows no kinds: bytes go through *decode* into the
sink. It never gives up and never returns; to stop it, cancel it.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Generic, NoReturn, Protocol, TypeVar

import msgspec
import structlog

from controller.backoff import Backoff
from controller.cache.cache_audit import CacheAudit
from controller.cache.watch_events import WatchEvent, is_older, read_event, read_meta
from controller.kube import (
    NO_PARAMETERS,
    Api,
    ApiError,
    Gone,
    Page,
    Parameters,
    ServerError,
    TooManyRequests,
    Unreachable,
)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

ObjectName = tuple[str, str]
"""The namespace and the name of an object."""

#: What reading an object may raise. Tenants write objects, so that no mistake in reading one may stop the others.
DECODE_ERRORS = Exception

#: So many objects that cannot be read are named in one line of the log.
_MAX_NAMES_LOGGED = 5
_MAX_PAGE_ATTEMPTS = 5
_MAX_EMPTY_WATCHES = 3

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Sink(Protocol[T_contra]):
    """Who is told what there is; called from the event loop, and not expected to wait."""

    def replace(self, objects: Sequence[T_contra], *, unread: Iterable[ObjectName] = ()) -> None:
        """Take *objects* as all there is; the empty list voids all that was told before, also what was newer.

        Besides, there is what *unread* names: what was told of it last stays.
        """

    def upsert(self, obj: T_contra) -> None:
        """Take *obj* as it is now, new or changed."""

    def remove(self, obj: T_contra) -> None:
        """Forget *obj*; what is given is its last state."""

    def forget(self, namespace: str, name: str) -> None:
        """Forget the object of that name, whose last state cannot be read."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How the informer lists and watches; times in seconds."""

    page: int = 500
    watch: float = 40
    """After about this time the server is asked to end a watch, which tells a silent connection from a quiet one."""
    silence: float = 58
    """No byte for so long means that the connection is dead."""
    healthy: float = 5
    """A watch that lasted so long is no failure, however it ended."""


class _RelistError(Exception):
    """Only a new list helps; the message says why."""


def never_known(_: WatchEvent) -> bool:
    """Say that every change is news."""
    return False


class Informer(Generic[T]):
    """Lists and watches *path*, and tells *sink* what *decode* makes of each object.

    What *decode* returns should be small: a whole list of it is held while a list is read.
    A change that *is_known*, from the answer to a write of ours, is neither decoded nor told.
    """

    def __init__(  # noqa: PLR0913 -- four parts that make it what it is, and four that are rarely given
        self,
        api: Api,
        path: str,
        *,
        decode: Callable[[bytes], T],
        sink: Sink[T],
        is_known: Callable[[WatchEvent], bool] = never_known,
        selectors: Parameters = NO_PARAMETERS,
        pace: WatchOptions | None = None,
        comparison: CacheAudit | None = None,
    ) -> None:
        self.path = path
        self.synced = asyncio.Event()
        """Set while what the sink was told is a state that the server really had."""
        self.lists = 0
        self.undecodable = 0
        self.heard_at = float("-inf")
        """When the server last said anything about this collection, on the monotonic clock."""
        self.version = ""
        self._api = api
        self._decode = decode
        self._sink = sink
        self._is_known = is_known
        self._selectors = selectors
        self._pace = pace or WatchOptions()
        self._comparison = comparison
        self._unread: dict[ObjectName, None] = {}
        """The objects whose present state could not be read."""
        self._backoff = Backoff()
        self._barren = 0
        self._is_outdated = False
        self._following: asyncio.Timeout | None = None

    async def run(self) -> NoReturn:
        """List and watch until cancelled."""
        while True:
            self._is_outdated = False
            objects, version = await self._list()
            if self._is_outdated:
                continue
            self._apply(objects, version)
            del objects
            try:
                async with asyncio.timeout(None) as self._following:
                    await self._follow()
            except TimeoutError:
                log.info("listing again", path=self.path, reason="other parts of the objects count now")
            except _RelistError as reason:
                self._following = None
                log.warning("listing again", path=self.path, reason=str(reason))
                await asyncio.sleep(self._backoff.next_delay())

    def list_again(self) -> None:
        """List anew at once, because *decode* makes something else of the same objects now."""
        self.synced.clear()
        self._is_outdated = True
        if self._following is not None and not self._following.expired():
            self._following.reschedule(asyncio.get_running_loop().time())

    def _apply(self, objects: list[T], version: str) -> None:
        if is_older(version, self.version):
            # Whatever is known from a later time than the server's is void.
            self._sink.replace([])
        self._sink.replace(objects, unread=tuple(self._unread))
        self.version = version
        self.lists += 1
        self._barren = 0
        self.synced.set()

    @property
    def unread(self) -> int:
        """Return how many objects there are whose present state could not be read."""
        return len(self._unread)

    @property
    def is_synced(self) -> bool:
        """Say whether the sink was told a state that the server really had."""
        return self.synced.is_set()

    @property
    def silent_for(self) -> float:
        """Return for how many seconds the server has said nothing about this collection."""
        return time.monotonic() - self.heard_at

    async def _list(self) -> tuple[list[T], str]:
        """Return the whole collection and its version, however often that must be tried."""
        while True:
            try:
                return await self._pages()
            except ApiError as error:
                await self._pause("list failed", error)

    async def _pages(self) -> tuple[list[T], str]:
        objects: list[T] = []
        unread: list[ObjectName] = []
        token = ""
        while True:
            page = await self._page(token)
            self.heard_at = time.monotonic()
            objects.extend(self._decode_page(page, unread))
            token = page.metadata.continue_token
            if not token:
                self._unread = dict.fromkeys(unread)
                return objects, page.metadata.resource_version

    async def _page(self, token: str) -> Page:
        """Read one page; a failure that may pass does not cost the pages before it."""
        for _ in range(_MAX_PAGE_ATTEMPTS):
            try:
                return await self._api.list_page(self.path, self._selectors, limit=self._pace.page, token=token)
            except (ServerError, TooManyRequests, Unreachable) as error:
                await self._pause("page failed", error)
        return await self._api.list_page(self.path, self._selectors, limit=self._pace.page, token=token)

    def _decode_page(self, page: Page, unread: list[ObjectName]) -> list[T]:
        """Return what can be read of *page*, and add the names of the rest to *unread*."""
        objects: list[T] = []
        failures: list[Exception] = []
        for raw in page.items or ():
            try:
                objects.append(self._decode(bytes(raw)))
            except DECODE_ERRORS as error:
                failures.append(error)
                unread.append(object_name(bytes(raw)))
        if failures:
            self.undecodable += len(failures)
            shown = ["/".join(filter(None, name)) for name in unread[-len(failures) :][:_MAX_NAMES_LOGGED]]
            log.error(
                "objects not understood", path=self.path, count=len(failures), objects=shown, last=str(failures[-1])
            )
        return objects

    async def _follow(self) -> NoReturn:
        """Watch from the last version on, again and again, until only a new list helps."""
        listed = True
        while True:
            began = time.monotonic()
            failure: ApiError | None = None
            try:
                if not listed:
                    await self._check_order()
                    await self._compare()
                listed = False
                await self._watch()
            except ApiError as error:
                if isinstance(error, Gone) or error.status == HTTPStatus.BAD_REQUEST:
                    raise _RelistError(error.message) from error
                failure = error
            lasted = time.monotonic() - began
            if lasted >= self._pace.healthy:
                self._backoff.reset()
            if failure or lasted < self._pace.healthy:
                await self._pause("watch failed", failure)

    async def _watch(self) -> None:
        """Take one watch's events until it ends."""
        seconds = round(self._pace.watch * random.uniform(0.75, 1.25))  # noqa: S311 -- spreads load, keeps no secret
        parameters = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.version,
            "timeoutSeconds": str(max(seconds, 1)),
        }
        async with self._api.stream(self.path, parameters, idle_timeout=self._pace.silence) as lines:
            self.heard_at = time.monotonic()
            self._barren += 1
            if self._barren > _MAX_EMPTY_WATCHES:
                raise _RelistError("watches break before they bring anything")
            async for line in lines:
                self._take(read_event(f"WATCH {self.path}", line))
                self._barren = 0
        self._barren = 0

    def _take(self, event: WatchEvent) -> None:
        if is_older(event.version, self.version):
            raise _RelistError(f"event {event.version} came after {self.version}")
        if event.change == "DELETED" or (event.change != "BOOKMARK" and not self._is_known(event)):
            self._tell(event)
        self.version = event.version or self.version
        self.heard_at = time.monotonic()

    def _tell(self, event: WatchEvent) -> None:
        name = event.namespace, event.name
        self._unread.pop(name, None)
        try:
            obj = self._decode(event.raw)
        except DECODE_ERRORS as error:
            self.undecodable += 1
            log.warning("object not understood", path=self.path, object=event.path, error=str(error))
            if event.change == "DELETED":
                self._sink.forget(*name)
            else:
                self._unread[name] = None
            return
        if event.change == "DELETED":
            self._sink.remove(obj)
        else:
            self._sink.upsert(obj)

    async def _check_order(self) -> None:
        """Start over if the server's present is before our past: its store was restored from an older copy.

        Such a server would keep a watch from our version silent until it has caught up.
        """
        page = await self._api.list_page(self.path, self._selectors, limit=1)
        if is_older(page.metadata.resource_version, self.version):
            self.synced.clear()
            raise _RelistError(f"the server went back from {self.version} to {page.metadata.resource_version}")

    async def _compare(self) -> None:
        """Start over if an event was lost in silence."""
        if self._comparison is None:
            return
        lacking = sum(not self._comparison.holds(*name) for name in self._unread)
        difference = await self._comparison.difference(self.version, lacking=lacking)
        if difference is not None:
            raise _RelistError(f"an event was lost: {difference}")

    async def _pause(self, event: str, error: ApiError | None) -> None:
        delay = self._backoff.next_delay(at_least=error.retry_after if error else None)
        if error:
            log.warning(event, path=self.path, error=str(error), again_in=round(delay, 2))
        await asyncio.sleep(delay)


def object_name(raw: bytes) -> ObjectName:
    """Return the name of an object that could not be read."""
    try:
        meta = read_meta(raw)
    except (msgspec.MsgspecError, RecursionError):
        return "", ""
    return meta.namespace, meta.name
