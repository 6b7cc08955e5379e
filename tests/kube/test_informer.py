"""The informer against scripted answers that a real API server cannot be made to send."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from controller.api.meta import Page
from controller.kube.client import Api
from controller.kube.collection import Collection
from controller.kube.informer import Informer, WatchOptions
from controller.kube.timing import Backoff
from tests.scripted_server import ScriptedServer, event, listing, paging, refusing, scripted_server, thing, watching
from tests.waiting import LIMIT_SECONDS

PATH = "/apis/example.io/v1/things"
ALL_WELL = watching(then="hang")


class Seen(NamedTuple):
    key: tuple[str, str]
    uid: str
    resource_version: int


def decode(raw: bytes) -> Seen:
    obj = json.loads(raw)
    if obj.get("poison"):
        raise ValueError("poison")
    name = obj["metadata"]["name"]
    return Seen(("ns", name), name, int(obj["metadata"]["resourceVersion"]))


class WaitableCollection(Collection[Seen]):
    """A collection that counts its lists and can be waited for."""

    def __init__(self) -> None:
        super().__init__(decode, lambda *_: self.changed.set())
        self.replaced = 0
        self.changed = asyncio.Event()

    @property
    def things(self) -> dict[str, int]:
        return {obj.uid: obj.resource_version for obj in self}

    def replace_in_steps(self, objects: Iterable[Seen], *, unreadable=()) -> Iterator[None]:
        yield from super().replace_in_steps(objects, unreadable=unreadable)
        self.replaced += bool(objects)
        self.changed.set()

    async def until(self, question: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not question():
                self.changed.clear()
                await self.changed.wait()

    async def contains(self, expected: dict[str, int]) -> None:
        await self.until(lambda: self.is_complete and self.things == expected)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


@asynccontextmanager
async def informing(
    server: ScriptedServer, tmp_path: Path, *, healthy: float = 0.05, silence: float = 5, is_known=lambda _: False
) -> AsyncIterator[tuple[Informer[Any], WaitableCollection]]:
    collection = WaitableCollection()
    async with Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api:
        pace = WatchOptions(page=2, watch=2, silence=silence, healthy_seconds=healthy)
        informer = Informer(api, PATH, decode=decode, sink=collection, options=pace)
        informer._backoff = Backoff(initial=0.01, maximum=0.02)
        informer._is_known = is_known
        async with asyncio.TaskGroup() as group:
            task = group.create_task(informer.run())
            yield informer, collection
            task.cancel()


async def unavailable(_: web.Request) -> web.Response:
    """Answer as the aggregation layer does while the server behind it restarts."""
    return web.Response(status=503, text="service unavailable\n")


FIRST, FIRST_PAGE = listing(thing("a", 1), version=7), listing(thing("a", 1), version=7, token="t")
SECOND = listing(thing("b", 8), version=9)
EXPIRED_EVENT = watching(event("ERROR", {"kind": "Status", "code": 410, "message": "too old"}))
OLDER_EVENT = watching(event("MODIFIED", thing("a", 9)), event("MODIFIED", thing("a", 8)))
HALF_AN_EVENT = event("ADDED", thing("b", 8))[:-9]
CUT_BEFORE_ANY_EVENT = watching(HALF_AN_EVENT, then="cut")
CUT_AFTER_A_BOOKMARK = watching(event("BOOKMARK", thing("", 8)), HALF_AN_EVENT, then="cut")


@pytest.mark.parametrize(
    ("lists", "watches", "cached", "replaced"),
    [
        pytest.param([FIRST, SECOND], [refusing(410), ALL_WELL], {"b": 8}, 2, id="expired-as-status"),
        pytest.param([FIRST, SECOND], [EXPIRED_EVENT, ALL_WELL], {"b": 8}, 2, id="expired-in-stream"),
        pytest.param([FIRST, SECOND], [OLDER_EVENT, ALL_WELL], {"b": 8}, 2, id="event-older-than-the-version"),
        pytest.param([FIRST] * 4 + [SECOND], [CUT_BEFORE_ANY_EVENT] * 4 + [ALL_WELL], {"b": 8}, 2, id="empty-watches"),
        pytest.param([FIRST_PAGE, refusing(410), SECOND], [ALL_WELL], {"b": 8}, 1, id="expired-continue-token"),
        pytest.param(
            [FIRST_PAGE, refusing(429, retry_after=0.01), refusing(503), refusing(500), SECOND],
            [ALL_WELL],
            {"a": 1, "b": 8},
            1,
            id="failed-page-is-retried-alone",
        ),
        *(
            pytest.param([refusing(status), refusing(status), SECOND], [ALL_WELL], {"b": 8}, 1, id=f"list-{status}")
            for status in (401, 403, 404)
        ),
        pytest.param(
            [FIRST, unavailable, SECOND],
            [CUT_AFTER_A_BOOKMARK, unavailable, refusing(410), ALL_WELL],
            {"b": 8},
            2,
            id="restart-of-an-aggregated-server",
        ),
    ],
)
async def test_cache_is_listed_again_only_where_needed(server, tmp_path, *, lists, watches, cached, replaced):
    server.says("GET", PATH, *lists)
    server.says("WATCH", PATH, *watches)
    with capture_logs() as logged:
        async with informing(server, tmp_path) as (informer, collection):
            await collection.contains(cached)
            await informer.synced.wait()
            assert collection.replaced == replaced
    assert {line["log_level"] for line in logged} <= {"debug", "info", "warning"}
    assert not any("exc_info" in line for line in logged)


@pytest.mark.parametrize("expires_at", [-1, 6])
async def test_list_of_large_objects_is_complete(server, tmp_path, monkeypatch, expires_at):
    monkeypatch.setattr("controller.kube.client.MAX_PAGE", 64 << 10)
    small = [thing(f"a{n}", n) for n in range(6)]
    large = [thing(f"b{n}", n, data="x" * 40_000) for n in range(6)]
    server.says("GET", PATH, paging(*small, *large, version=9, expires_at=expires_at))
    server.says("WATCH", PATH, ALL_WELL)
    async with informing(server, tmp_path) as (informer, collection):
        await collection.contains(
            {item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in [*small, *large]}
        )
        assert collection.replaced == informer.lists == 1
    assert {parameters["limit"] for parameters in server.seen("GET")} == {"1", "2"}


async def test_silent_connection_is_closed_without_losing_events(server, tmp_path):
    server.says("GET", PATH, listing(thing("a", 1), version=7))
    server.says("WATCH", PATH, ALL_WELL, watching(event("ADDED", thing("b", 8)), then="hang"))
    async with informing(server, tmp_path, silence=0.1) as (_, collection):
        await collection.contains({"a": 1, "b": 8})
        assert collection.replaced == 1


@pytest.mark.parametrize(
    ("first", "resumed_at"),
    [
        pytest.param(watching(event("MODIFIED", thing("a", 8))), "8", id="ended-after-an-event"),
        pytest.param(watching(event("BOOKMARK", thing("", 12))), "12", id="ended-after-a-bookmark"),
        pytest.param(watching(HALF_AN_EVENT), "7", id="ended-in-the-middle-of-a-line"),
        pytest.param(watching(HALF_AN_EVENT, then="cut"), "7", id="cut"),
        pytest.param(watching(b"<html>\n"), "7", id="not-json"),
        pytest.param(watching(event("ERROR", {"kind": "Status", "code": 500, "message": "etcd"})), "7", id="error-500"),
        pytest.param(refusing(429), "7", id="too-many-requests"),
        pytest.param(refusing(503), "7", id="unavailable"),
    ],
)
async def test_broken_watch_resumes_at_its_version(server, tmp_path, first, resumed_at):
    server.says("GET", PATH, FIRST, listing(version=13))
    server.says("WATCH", PATH, first, watching(event("DELETED", thing("a", 13)), then="hang"))
    async with informing(server, tmp_path) as (_, collection):
        await collection.contains({})
        assert collection.replaced == 1
    assert [watch["resourceVersion"] for watch in server.seen("WATCH")] == ["7", resumed_at]


async def test_restored_server_is_unsynced_until_relist(server, tmp_path):
    asked, release = asyncio.Event(), asyncio.Event()

    async def slow_list(request):
        asked.set()
        await release.wait()
        return await listing(thing("old", 2), version=3)(request)

    server.says("GET", PATH, listing(thing("a", 5), version=7), listing(version=3), slow_list)
    server.says("WATCH", PATH, watching(), ALL_WELL)
    async with informing(server, tmp_path) as (informer, collection):
        await collection.contains({"a": 5})
        async with asyncio.timeout(LIMIT_SECONDS):
            await asked.wait()
        assert not informer.synced.is_set()
        release.set()
        await collection.contains({"old": 2})
        assert informer.synced.is_set()


async def test_object_that_becomes_unreadable_keeps_its_last_state(server, tmp_path):
    """Its workload must stay charged: a list without the object would mean that it was deleted."""
    bad, deleted = thing("a", 8, poison=True), event("DELETED", thing("a", 12, poison=True))
    server.says("GET", PATH, listing(thing("a", 2), version=7), listing(bad, thing("b", 3), version=11))
    changes = watching(event("MODIFIED", bad), event("ADDED", thing("c", 10)), then="hang")
    server.says("WATCH", PATH, changes, watching(event("BOOKMARK", thing("", 11))), watching(deleted, then="hang"))
    async with informing(server, tmp_path) as (informer, collection):
        await collection.contains({"a": 2, "c": 10})
        informer.relist()
        assert not informer.synced.is_set()
        await collection.contains({"a": 2, "b": 3})
        assert informer.synced.is_set()
        assert informer.unreadable == 1
        # A tenant that creates and deletes such objects must not cause repeated lists.
        await collection.contains({"b": 3})
        assert (informer.unreadable, informer.decode_failures, collection.replaced) == (0, 3, 2)


async def test_object_nested_10000_deep_does_not_stop_the_informer(server, tmp_path):
    """The API server stores such objects in fields that preserve unknown fields."""
    nested = b"[" * 9_990 + b"]" * 9_990
    deep = thing("deep", 2) | {"spec": "DEEP"}
    whole = {"metadata": {"resourceVersion": "7"}, "items": [deep, thing("a", 3)]}

    async def list_deep(_):
        body = json.dumps(whole).encode().replace(b'"DEEP"', nested)
        return web.Response(body=body, content_type="application/json")

    changed = event("MODIFIED", deep | thing("deep", 8)).replace(b'"DEEP"', nested)
    server.says("GET", PATH, list_deep)
    server.says("WATCH", PATH, watching(changed, event("ADDED", thing("b", 9)), then="hang"))
    async with informing(server, tmp_path) as (informer, collection):
        await collection.contains({"a": 3, "b": 9, "deep": 8})
        assert collection.replaced == 1
        assert informer.unreadable == 0


async def test_watches_that_end_at_once_are_backed_off(server, tmp_path):
    asked = asyncio.Event()

    async def fourth(request):
        asked.set()
        return await ALL_WELL(request)

    server.says("GET", PATH, listing(thing("a", 2), version=7))
    server.says("WATCH", PATH, watching(), watching(), watching(), fourth)
    # No watch counts as healthy, however slow the machine is.
    async with informing(server, tmp_path, healthy=3600) as (informer, _), asyncio.timeout(LIMIT_SECONDS):
        await asked.wait()
        assert informer._backoff.failures == 3


async def test_repeated_relist_requests_cause_one_list(server, tmp_path):
    server.says("GET", PATH, listing(thing("a", 2), version=7), listing(thing("b", 3), version=8))
    server.says("WATCH", PATH, refusing(410), ALL_WELL)
    async with informing(server, tmp_path) as (informer, collection):
        async with asyncio.timeout(LIMIT_SECONDS):
            while collection.replaced < 12:
                informer.relist()
                informer.relist()
                await asyncio.sleep(0.005)
        await collection.contains({"b": 3})
        await informer.synced.wait()


async def test_informer_has_caught_up_once_a_watch_brings_nothing(server, tmp_path):
    watched = asyncio.Event()

    async def stalled(request):
        watched.set()
        return await ALL_WELL(request)

    server.says("GET", PATH, FIRST, listing(version=9))
    server.says("WATCH", PATH, stalled, refusing(503), watching(event("ADDED", thing("b", 8))), watching(), ALL_WELL)
    async with informing(server, tmp_path) as (informer, collection):
        async with asyncio.timeout(LIMIT_SECONDS):
            await watched.wait()
            informer.catch_up()
            assert informer.synced.is_set()
            informer._listed_at -= 6
            informer.catch_up()
            assert not informer.synced.is_set()
            await informer.synced.wait()
        assert collection.things == {"a": 1, "b": 8}
        assert collection.replaced == 1
    assert [watch["timeoutSeconds"] == "1" for watch in server.seen("WATCH")][:4] == [False, True, True, True]


async def test_informer_that_missed_much_catches_up_in_parts(server, tmp_path):
    watched = asyncio.Event()

    async def stalled(request):
        watched.set()
        return await ALL_WELL(request)

    parts = [watching(event("ADDED", thing(name, version))) for name, version in (("b", 8), ("c", 9))]
    server.says("GET", PATH, FIRST, listing(version=9))
    server.says("WATCH", PATH, stalled, *parts, ALL_WELL)
    async with informing(server, tmp_path) as (informer, collection), asyncio.timeout(LIMIT_SECONDS):
        await watched.wait()
        informer._listed_at -= 6
        informer.catch_up()
        await informer.synced.wait()
        assert collection.things == {"a": 1, "b": 8, "c": 9}
        assert [watch["timeoutSeconds"] == "1" for watch in server.seen("WATCH")] == [False, True, True]


async def test_list_begun_before_catch_up_is_not_enough(server, tmp_path):
    listed, may_answer = asyncio.Event(), asyncio.Event()

    async def slow(request):
        listed.set()
        await may_answer.wait()
        return await FIRST(request)

    server.says("GET", PATH, slow, listing(version=8))
    server.says("WATCH", PATH, watching(event("ADDED", thing("b", 8))), ALL_WELL)
    async with informing(server, tmp_path) as (informer, collection), asyncio.timeout(LIMIT_SECONDS):
        await listed.wait()
        informer._listed_at -= 6
        informer.catch_up()
        may_answer.set()
        await informer.synced.wait()
        assert collection.things == {"a": 1, "b": 8}
    assert server.seen("WATCH")[0]["timeoutSeconds"] == "1"


async def test_stopped_informer_ignores_catch_up(server, tmp_path):
    watched = asyncio.Event()

    async def watch(request):
        watched.set()
        return await ALL_WELL(request)

    server.says("GET", PATH, FIRST)
    server.says("WATCH", PATH, watch)
    async with informing(server, tmp_path) as (informer, _), asyncio.timeout(LIMIT_SECONDS):
        await watched.wait()
    informer._listed_at -= 6
    informer.catch_up()
    assert not informer.synced.is_set()


@pytest.mark.parametrize(("status", "is_optional"), [(404, False), (403, True), (401, True)])
async def test_unavailable_kind_need_not_catch_up(server, tmp_path, status, is_optional):
    server.says("GET", PATH, FIRST, refusing(status))
    server.says("WATCH", PATH, ALL_WELL)
    async with informing(server, tmp_path) as (informer, _), asyncio.timeout(LIMIT_SECONDS):
        informer._is_optional = is_optional
        await informer.synced.wait()
        informer._listed_at -= 6
        informer.catch_up()
        assert not informer.synced.is_set()
        await informer.synced.wait()


async def test_cache_is_not_compared_before_it_has_caught_up(server, tmp_path):
    compared = asyncio.Event()

    async def compare():
        assert informer.synced.is_set()
        compared.set()

    server.says("GET", PATH, FIRST, listing(version=9))
    server.says("WATCH", PATH, ALL_WELL, watching(), watching(), ALL_WELL)
    async with informing(server, tmp_path) as (informer, _), asyncio.timeout(LIMIT_SECONDS):
        informer._compare = compare
        await informer.synced.wait()
        informer._listed_at -= 6
        informer.catch_up()
        await informer.synced.wait()
        await compared.wait()


async def test_event_already_known_from_a_write_is_skipped(server, tmp_path):
    server.says("GET", PATH, listing(thing("a", 2), version=7))
    server.says(
        "WATCH",
        PATH,
        watching(
            event("MODIFIED", thing("a", 8)),
            event("ADDED", thing("b", 9)),
            event("DELETED", thing("a", 10)),
            then="hang",
        ),
    )
    async with informing(server, tmp_path, is_known=lambda known: known.meta.name == "a") as (informer, collection):
        await collection.contains({"b": 9})
        assert informer.version == "10"


class SlicedCollection(WaitableCollection):
    """A collection that records how many objects of a list are applied in each turn of the event loop."""

    def __init__(self, informer: Informer[Any]) -> None:
        super().__init__()
        self.informer = informer
        self.slices: list[int] = []
        self.synced_between_slices = False
        self._turn_has_begun = self._is_replacing = False

    def replace_in_steps(self, objects: Iterable[Seen], *, unreadable=()) -> Iterator[None]:
        self._is_replacing = True
        for _ in super().replace_in_steps(objects, unreadable=unreadable):
            if not self._turn_has_begun:
                self._turn_has_begun = True
                self.slices.append(0)
                asyncio.get_running_loop().call_soon(self._end_turn)
            self.slices[-1] += 1
            yield
        self._is_replacing = False

    def _end_turn(self) -> None:
        self._turn_has_begun = False
        if self._is_replacing:
            self.synced_between_slices |= self.informer.is_synced


async def test_long_lists_are_applied_in_slices_before_synced(server, tmp_path):
    long = [thing(f"t{number}", 1) for number in range(1_800)]
    server.says("GET", PATH, listing(*long, version=7), listing(*long[:300], version=9))
    server.says("WATCH", PATH, refusing(410), ALL_WELL)
    async with informing(server, tmp_path) as (informer, _):
        informer._sink = collection = SlicedCollection(informer)
        await collection.until(lambda: collection.replaced == 1)
        assert len(collection.things) == 1_800
        await collection.until(lambda: collection.replaced == 2)
        assert len(collection.things) == 300
        assert max(collection.slices) == 500
        assert not collection.synced_between_slices
        assert informer.synced.is_set()


async def test_large_objects_of_a_page_are_decoded_in_slices():
    turns: list[list[int]] = []

    def begin_turn() -> None:
        turns.append([])
        asyncio.get_running_loop().call_soon(begin_turn)

    informer = Informer(None, PATH, decode=lambda raw: turns[-1].append(len(raw)), sink=WaitableCollection())
    items = tuple(msgspec.Raw(b'"' + b"x" * 100 * 1024 + b'"') for _ in range(12))
    begin_turn()
    await informer._decode_page(Page(items=items), [], [])
    assert sum(map(len, turns)) == 12
    assert max(map(len, turns)) == 3


async def test_relist_request_while_a_list_is_applied_lists_again(server, tmp_path):
    long = [thing(f"t{number}", 1) for number in range(1_800)]
    server.says("GET", PATH, listing(*long, version=7), listing(thing("new", 8), version=8))
    server.says("WATCH", PATH, ALL_WELL)
    async with informing(server, tmp_path) as (informer, _):
        informer._sink = collection = SlicedCollection(informer)
        async with asyncio.timeout(LIMIT_SECONDS):
            while len(collection.things) < 500:  # noqa: ASYNC110 -- between two slices
                await asyncio.sleep(0)
        informer.relist()
        await informer.synced.wait()
        assert collection.things == {"new": 8}
