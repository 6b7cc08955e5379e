"""Synchronises a sink with one collection of the API server: list, then watch.

It is independent of kinds and stores no objects: *decode* turns bytes into what the sink takes. It retries all errors
and runs until it is cancelled.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import msgspec
import structlog

from controller.api.meta import Page
from controller.kube.cache_audit import CacheAudit
from controller.kube.client import NO_PARAMETERS, Api, Parameters
from controller.kube.collection import Collection
from controller.kube.errors import (
    ApiError,
    Forbidden,
    Gone,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from controller.kube.timing import Backoff
from controller.kube.watch_events import DECODE_ERRORS, WatchEvent, is_older, read_event, read_meta

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

ObjectName = tuple[str, str]
"""Namespace and name of an object."""

#: Maximum number of unreadable objects that one log line names.
_MAX_NAMES_LOGGED = 5
_MAX_PAGE_ATTEMPTS = 5
#: Objects of a page are decoded in slices, between which the request for the next page is sent and answered.
_OBJECTS_PER_SLICE = 50
_BYTES_PER_SLICE = 256 * 1024
#: A list is applied in slices of some milliseconds, between which the lease is renewed and probes are answered.
_STEPS_PER_SLICE = 500
_MAX_EMPTY_WATCHES = 3
#: Seconds without any byte after which a watch that was to end in one second is considered dead.
_CATCH_UP_SILENCE = 10
#: A leader writes nothing in the last seconds of its lease, so a list begun then has all its writes.
_NEW_LIST_SECONDS = 5

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Sink(Protocol[T_contra]):
    """Receives the objects of a collection; called from the event loop, so it must not block."""

    def replace_in_steps(self, objects: Sequence[T_contra], *, unreadable: Iterable[ObjectName] = ()) -> Iterator[None]:
        """Apply a complete list in short steps; an empty list clears everything, newer observations included.

        *unreadable* names existing objects that could not be read: their last observed state stays.
        """

    def upsert(self, obj: T_contra) -> None:
        """Add or update *obj*."""

    def remove(self, obj: T_contra) -> None:
        """Delete an object; *obj* is its last state."""

    def forget(self, namespace: str, name: str) -> None:
        """Delete the object with that name; its last state cannot be read."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Page size and timeouts of lists and watches; times in seconds."""

    page: int = 500
    watch: float = 40
    """Approximate duration of a watch; it is bounded, to detect dead connections."""
    silence: float = 58
    """A connection without any byte for this long is considered dead."""
    healthy_seconds: float = 5
    """A watch that lasted this long counts as successful, however it ended."""


class _RelistError(Exception):
    """A new list is needed; the message says why."""


def never_known(_: WatchEvent) -> bool:
    """Treat every change as new."""
    return False


class Informer(Generic[T]):
    """Lists and watches *path*, and passes to *sink* what *decode* makes of each object.

    The result of *decode* should be small: a whole list of results is in memory while a list is read. A change that
    *is_known* accepts was already applied from the response to a write, and is neither decoded nor passed on.
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
        options: WatchOptions | None = None,
        audit: CacheAudit | None = None,
        is_optional: bool = False,
    ) -> None:
        """An *is_optional* collection blocks nothing where it is not served or may not be read."""
        self.path = path
        self.synced = asyncio.Event()
        """Set while the sink has a state that the server really had."""
        self.lists = 0
        self.decode_failures = 0
        self.last_response_at = float("-inf")
        """When the server last sent anything about this collection, on the monotonic clock."""
        self.version = ""
        self._api = api
        self._decode = decode
        self._sink = sink
        self._is_known = is_known
        self._selectors = selectors
        self._options = options or WatchOptions()
        self._audit = audit
        self._is_optional = is_optional
        self._unreadable: dict[ObjectName, None] = {}
        """Objects with an unreadable current state."""
        self._backoff = Backoff()
        self._empty_watches = 0
        self._must_relist = False
        self._must_catch_up = False
        self._is_restored = False
        """Whether the sink may have objects in versions that the server does not have any more."""
        self._listed_at = float("-inf")
        """When the last list was begun, on the monotonic clock."""
        self._watch_timeout: asyncio.Timeout | None = None

    async def run(self) -> NoReturn:
        """List and watch until cancelled."""
        while True:
            self._must_relist = False
            objects, version = await self._list()
            if not self._must_relist:
                await self._apply(objects, version)
            del objects
            if self._must_relist:
                continue
            if not self._must_catch_up:
                self.synced.set()
            await self._watch_until_relist()

    def relist(self) -> None:
        """List again at once, because *decode* gives other results for the same objects now."""
        self.synced.clear()
        self._must_relist = True
        self._end_watch()

    def catch_up(self) -> None:
        """Be in sync only once the server has sent all changes until now: a stalled watch is found late.

        A list begun in the last seconds is new enough.
        """
        if time.monotonic() - self._listed_at > _NEW_LIST_SECONDS:
            self.synced.clear()
            self._must_catch_up = True
            self._end_watch()

    def _has_caught_up(self) -> None:
        self._must_catch_up = False
        self.synced.set()

    def _end_watch(self) -> None:
        if self._watch_timeout is not None and not self._watch_timeout.expired():
            self._watch_timeout.reschedule(asyncio.get_running_loop().time())

    async def _apply(self, objects: list[T], version: str) -> None:
        if self._is_restored or is_older(version, self.version):
            # The server was restored from a backup: objects from later versions do not exist.
            await self._replace([])
            self._is_restored = False
        await self._replace(objects, unreadable=tuple(self._unreadable))
        self.version = version
        self.lists += 1
        self._empty_watches = 0

    async def _replace(self, objects: list[T], *, unreadable: Iterable[ObjectName] = ()) -> None:
        """Apply a list in slices; after the first one the sink is not in sync until all are applied."""
        for step, _ in enumerate(self._sink.replace_in_steps(objects, unreadable=unreadable), start=1):
            if step % _STEPS_PER_SLICE == 0:
                self.synced.clear()
                await asyncio.sleep(0)

    @property
    def unreadable(self) -> int:
        """Number of objects with an unreadable current state."""
        return len(self._unreadable)

    @property
    def is_synced(self) -> bool:
        """Whether the sink has a state that the server really had."""
        return self.synced.is_set()

    @property
    def seconds_since_response(self) -> float:
        """Seconds since the server last sent anything about this collection."""
        return time.monotonic() - self.last_response_at

    async def _list(self) -> tuple[list[T], str]:
        """List the collection, retrying until it succeeds; return its objects and version."""
        while True:
            self._listed_at, self._must_catch_up = time.monotonic(), False
            try:
                return await self._list_pages()
            except ApiError as error:
                await self._back_off("list failed", error)

    async def _list_pages(self) -> tuple[list[T], str]:
        """Read all pages; the server prepares each page while the one before it is decoded."""
        objects: list[T] = []
        unreadable: list[ObjectName] = []
        page = await self._list_page("")
        while True:
            self.last_response_at = time.monotonic()
            token = page.metadata.continue_token
            following = asyncio.create_task(self._list_page(token)) if token else None
            try:
                await self._decode_page(page, objects, unreadable)
                if following is None:
                    self._unreadable = dict.fromkeys(unreadable)
                    return objects, page.metadata.resource_version
                page = await following
            finally:
                if following is not None:
                    following.cancel()

    async def _list_page(self, token: str) -> Page:
        """Read one page; a transient error is retried without losing the pages before it."""
        for _ in range(_MAX_PAGE_ATTEMPTS):
            try:
                return await self._api.list_page(self.path, self._selectors, limit=self._options.page, token=token)
            except (ServerError, TooManyRequests, Unreachable) as error:
                await self._back_off("page failed", error)
        return await self._api.list_page(self.path, self._selectors, limit=self._options.page, token=token)

    async def _decode_page(self, page: Page, objects: list[T], unreadable: list[ObjectName]) -> None:
        """Add the readable objects of *page* to *objects*, and the names of the others to *unreadable*."""
        failures: list[Exception] = []
        size = 0
        for number, raw in enumerate(page.items or ()):
            if number % _OBJECTS_PER_SLICE == 0 or size >= _BYTES_PER_SLICE:
                await asyncio.sleep(0)
                size = 0
            size += len(memoryview(raw))
            try:
                objects.append(self._decode(bytes(raw)))
            except DECODE_ERRORS as error:
                failures.append(error)
                unreadable.append(object_name(bytes(raw)))
        if failures:
            self.decode_failures += len(failures)
            shown = ["/".join(filter(None, name)) for name in unreadable[-len(failures) :][:_MAX_NAMES_LOGGED]]
            log.error("objects unreadable", path=self.path, count=len(failures), objects=shown, last=str(failures[-1]))

    async def _watch_until_relist(self) -> None:
        """Watch from the last version on until a new list is needed."""
        listed = True
        while not self._must_relist:
            try:
                async with asyncio.timeout(None) as self._watch_timeout:
                    await self._watch_repeatedly(listed=listed)
            except TimeoutError:
                listed = False
            except _RelistError as reason:
                log.warning("relisting", path=self.path, reason=str(reason))
                break
            finally:
                self._watch_timeout = None
        else:
            log.info("relisting", path=self.path, reason="the configuration changed which fields count")
            return
        await asyncio.sleep(self._backoff.next_delay())

    async def _watch_repeatedly(self, *, listed: bool) -> NoReturn:
        """Watch from the last version on, repeatedly; *listed*: it is that of a list."""
        while True:
            began = time.monotonic()
            failure: ApiError | None = None
            try:
                if self._must_catch_up:
                    await self._receive_until(await self._server_version())
                    self._has_caught_up()
                elif not listed:
                    await self._server_version()
                    # It may list all objects, for which decisions would wait while catching up.
                    await self._compare()
                listed = False
                await self._watch()
            except ApiError as error:
                if isinstance(error, Gone) or error.status == HTTPStatus.BAD_REQUEST:
                    raise _RelistError(error.message) from error
                if self._must_catch_up and self._is_unavailable(error):
                    # There is nothing to wait for.
                    self._has_caught_up()
                failure = error
            lasted = time.monotonic() - began
            if lasted >= self._options.healthy_seconds:
                self._backoff.reset()
            if failure or lasted < self._options.healthy_seconds:
                await self._back_off("watch failed", failure)

    def _is_unavailable(self, error: ApiError) -> bool:
        """Return whether the kind was removed, or may not be read any more and is optional."""
        return isinstance(error, NotFound) or (self._is_optional and isinstance(error, Forbidden | Unauthorized))

    async def _receive_until(self, version: str) -> None:
        """Process all changes of the collection until *version*; the last of them may be older than it.

        The server ends a short watch after it has sent what it has, or a part of very much.
        """
        received = None
        while is_older(self.version, version) and received != self.version:
            received = self.version
            await self._watch(seconds=1)

    async def _watch(self, *, seconds: int | None = None) -> None:
        """Process the events of one watch until it ends, after about as many seconds as the options say."""
        usual = round(self._options.watch * random.uniform(0.75, 1.25))  # noqa: S311 -- spreads load, keeps no secret
        parameters = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.version,
            "timeoutSeconds": str(seconds or max(usual, 1)),
        }
        silence = self._options.silence if seconds is None else _CATCH_UP_SILENCE
        async with self._api.stream(self.path, parameters, idle_timeout=silence) as lines:
            self.last_response_at = time.monotonic()
            self._empty_watches += 1
            if self._empty_watches > _MAX_EMPTY_WATCHES:
                raise _RelistError("watches end before any event")
            async for line in lines:
                self._apply_event(read_event(f"WATCH {self.path}", line))
                self._empty_watches = 0
        self._empty_watches = 0

    def _apply_event(self, event: WatchEvent) -> None:
        version = event.meta.resource_version
        if is_older(version, self.version):
            raise _RelistError(f"event {version} came after {self.version}")
        if event.change == "DELETED" or (event.change != "BOOKMARK" and not self._is_known(event)):
            self._dispatch(event)
        self.version = version or self.version
        self.last_response_at = time.monotonic()

    def _dispatch(self, event: WatchEvent) -> None:
        name = event.meta.namespace, event.meta.name
        self._unreadable.pop(name, None)
        try:
            obj = self._decode(event.raw)
        except DECODE_ERRORS as error:
            self.decode_failures += 1
            log.warning("object unreadable", path=self.path, object=event.meta.path, error=str(error))
            if event.change == "DELETED":
                self._sink.forget(*name)
            else:
                self._unreadable[name] = None
            return
        if event.change == "DELETED":
            self._sink.remove(obj)
        else:
            self._sink.upsert(obj)

    async def _server_version(self) -> str:
        """Return the server's present version; relist if it is older than ours: its store was restored from a backup.

        Such a server would send nothing on a watch from our version until it has caught up.
        """
        page = await self._api.list_page(self.path, self._selectors, limit=1)
        version = page.metadata.resource_version
        if is_older(version, self.version):
            self.synced.clear()
            raise _RelistError(f"the server's version decreased from {self.version} to {version}")
        return version

    async def _compare(self) -> None:
        """Relist if a watch event was silently lost, or the server's store was restored from a backup."""
        if self._audit is None:
            return
        lacking = {name for name in self._unreadable if not self._audit.contains(*name)}
        difference = await self._audit.find_difference(self.version, lacking=lacking)
        if difference is None:
            return
        if not difference.is_restored:
            raise _RelistError(f"an event was lost: {difference.message}")
        self.synced.clear()
        self._is_restored = True
        raise _RelistError(f"the server was restored from a backup: {difference.message}")

    async def _back_off(self, event: str, error: ApiError | None) -> None:
        delay = self._backoff.next_delay(at_least=error.retry_after if error else None)
        if error:
            log.warning(event, path=self.path, error=str(error), again_in=round(delay, 2))
        await asyncio.sleep(delay)


def audited_informer(  # noqa: PLR0913 -- two of them are rarely given
    api: Api,
    path: str,
    collection: Collection[Any],
    *,
    options: WatchOptions,
    selectors: Parameters = NO_PARAMETERS,
    is_known: Callable[[WatchEvent], bool] = never_known,
    is_optional: bool = False,
) -> Informer[Any]:
    """Return an informer that fills *collection* with the objects of *path*, and relists where an event was lost."""
    return Informer(
        api,
        path,
        decode=collection.decode,
        sink=collection,
        is_known=is_known,
        selectors=selectors,
        options=options,
        audit=CacheAudit(api, path, collection, selectors=selectors, page=options.page),
        is_optional=is_optional,
    )


def object_name(raw: bytes) -> ObjectName:
    """Return the namespace and name of an object that could not be decoded."""
    try:
        meta = read_meta(raw)
    except (msgspec.MsgspecError, RecursionError):
        return "", ""
    return meta.namespace, meta.name
