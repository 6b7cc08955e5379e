"""The informer against scripted answers that a real API server cannot be made to send."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from controller.kube.client import Api
from controller.kube.informer import Informer, WatchOptions
from controller.kube.timing import Backoff
from tests.scripted_server import ScriptedServer, event, listing, paging, refusing, scripted_server, thing, watching
from tests.waiting import LIMIT_SECONDS

PATH = "/apis/example.io/v1/things"
ALL_WELL = watching(then="hang")


class Shelf:
    """A sink that keeps names with their versions and can be waited for."""

    def __init__(self) -> None:
        self.things: dict[str, str] = {"nothing was told": ""}
        self.replaced = 0
        self.voided = 0
        self.changed = asyncio.Event()

    def replace_in_steps(self, objects: Sequence[Any], *, unreadable: Iterable[tuple[str, str]] = ()) -> Iterator[None]:
        self.replaced += 1
        self.voided += not objects
        kept = {name: self.things[name] for _, name in unreadable if name in self.things}
        self.things = kept | {name(obj): version(obj) for obj in objects}
        self.changed.set()
        yield

    def upsert(self, obj: Any) -> None:
        self.things[name(obj)] = version(obj)
        self.changed.set()

    def remove(self, obj: Any) -> None:
        self.things.pop(name(obj), None)
        self.changed.set()

    def forget(self, _: str, name: str) -> None:
        self.things.pop(name, None)
        self.changed.set()

    async def contains(self, expected: dict[str, int]) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while self.things != {key: str(value) for key, value in expected.items()}:
                self.changed.clear()
                await self.changed.wait()

    async def was_replaced(self, times: int) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while self.replaced < times:
                self.changed.clear()
                await self.changed.wait()


def name(obj: Any) -> str:
    return str(obj["metadata"]["name"])


def version(obj: Any) -> str:
    return str(obj["metadata"]["resourceVersion"])


def decode(raw: bytes) -> Any:
    obj = json.loads(raw)
    if obj.get("poison"):
        raise ValueError("poison")
    return obj


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


@asynccontextmanager
async def informing(
    server: ScriptedServer, tmp_path: Path, *, healthy: float = 0.05, silence: float = 5, is_known=lambda _: False
) -> AsyncIterator[tuple[Informer[Any], Shelf]]:
    shelf = Shelf()
    async with Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api:
        pace = WatchOptions(page=2, watch=2, silence=silence, healthy_seconds=healthy)
        informer = Informer(api, PATH, decode=decode, sink=shelf, options=pace)
        informer._backoff = Backoff(initial=0.01, maximum=0.02)
        informer._is_known = is_known
        async with asyncio.TaskGroup() as group:
            task = group.create_task(informer.run())
            yield informer, shelf
            task.cancel()


async def test_list_is_paged_and_watched_from_its_version(server, tmp_path):
    server.says(
        "GET", PATH, listing(thing("a", 1), thing("b", 2), version=7, token="t"), listing(thing("c", 3), version=7)
    )
    server.says("WATCH", PATH, watching(event("ADDED", thing("d", 9)), then="hang"))
    async with informing(server, tmp_path) as (informer, shelf):
        await shelf.contains({"a": 1, "b": 2, "c": 3, "d": 9})
        assert informer.synced.is_set()
    assert [page.get("continue") for page in server.seen("GET")] == [None, "t"]
    assert server.seen("WATCH")[0]["resourceVersion"] == "7"
    assert server.seen("WATCH")[0]["allowWatchBookmarks"] == "true"


async def test_next_page_is_requested_before_one_is_decoded(server, tmp_path):
    things = [thing(f"t{number}", 1) for number in range(1_000)]
    server.says("GET", PATH, listing(*things, version=7, token="t"), listing(thing("z", 3), version=7))
    server.says("WATCH", PATH, ALL_WELL)
    requests_at_last = []

    def decode_slowly(raw: bytes) -> Any:
        if b'"t999"' in raw:
            requests_at_last.append(len(server.seen("GET")))
        return decode(raw)

    async with informing(server, tmp_path) as (informer, shelf):
        informer._decode = decode_slowly
        await shelf.was_replaced(1)
        assert len(shelf.things) == 1_001
    assert requests_at_last == [2]


async def test_list_that_is_cancelled_sends_no_more_requests(server, tmp_path):
    server.says("GET", PATH, listing(thing("a", 1), version=7, token="t"), ALL_WELL)
    async with informing(server, tmp_path):
        async with asyncio.timeout(LIMIT_SECONDS):
            while len(server.seen("GET")) < 2:  # noqa: ASYNC110 -- the scripted server gives no event
                await asyncio.sleep(0.01)
    assert [task for task in asyncio.all_tasks() if "_list_page" in repr(task)] == []


async def test_ended_watch_resumes_after_the_last_event(server, tmp_path):
    server.says("GET", PATH, listing(thing("a", 1), version=7))
    server.says(
        "WATCH",
        PATH,
        watching(event("MODIFIED", thing("a", 8)), event("BOOKMARK", thing("", 12))),
        watching(event("DELETED", thing("a", 13)), then="hang"),
    )
    server.says("GET", PATH, listing(thing("a", 1), version=7), listing(thing("a", 8), version=12))
    async with informing(server, tmp_path) as (_, shelf):
        await shelf.contains({})
        assert shelf.replaced == 1
    assert [watch["resourceVersion"] for watch in server.seen("WATCH")] == ["7", "12"]


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(refusing(410), id="as-status"),
        pytest.param(watching(event("ERROR", {"kind": "Status", "code": 410, "message": "too old"})), id="in-stream"),
    ],
)
async def test_expired_version_causes_a_relist(server, tmp_path, gone):
    server.says("GET", PATH, listing(thing("a", 1), version=7), listing(thing("b", 8), version=9))
    server.says("WATCH", PATH, gone, ALL_WELL)
    async with informing(server, tmp_path) as (_, shelf):
        await shelf.contains({"b": 8})
    assert server.seen("WATCH")[-1]["resourceVersion"] in {"7", "9"}


async def test_expired_continue_token_restarts_the_list(server, tmp_path):
    server.says(
        "GET",
        PATH,
        listing(thing("a", 1), version=7, token="t"),
        refusing(410),
        listing(thing("b", 8), version=9),
    )
    server.says("WATCH", PATH, ALL_WELL)
    async with informing(server, tmp_path) as (_, shelf):
        await shelf.contains({"b": 8})
        assert shelf.replaced == 1


@pytest.mark.parametrize("expires_at", [-1, 6])
async def test_list_of_large_objects_is_complete(server, tmp_path, monkeypatch, expires_at):
    monkeypatch.setattr("controller.kube.client.MAX_PAGE", 64 << 10)
    small = [thing(f"a{n}", n) for n in range(6)]
    large = [thing(f"b{n}", n, data="x" * 40_000) for n in range(6)]
    server.says("GET", PATH, paging(*small, *large, version=9, expires_at=expires_at))
    server.says("WATCH", PATH, ALL_WELL)
    async with informing(server, tmp_path) as (informer, shelf):
        await shelf.contains({name(each): int(version(each)) for each in [*small, *large]})
        assert shelf.replaced == informer.lists == 1
    assert {parameters["limit"] for parameters in server.seen("GET")} == {"1", "2"}


async def test_failed_page_is_retried_alone(server, tmp_path):
    server.says(
        "GET",
        PATH,
        refusing(429, retry_after=0.01),
        listing(thing("a", 1), version=7, token="t"),
        refusing(503),
        refusing(500),
        listing(thing("b", 8), version=9),
    )
    server.says("WATCH", PATH, ALL_WELL)
    async with informing(server, tmp_path) as (_, shelf):
        await shelf.contains({"a": 1, "b": 8})
    assert [page.get("continue") for page in server.seen("GET")] == [None, None, "t", "t", "t"]


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_rejected_list_is_retried(server, tmp_path, status):
    server.says("GET", PATH, refusing(status), refusing(status), listing(thing("a", 1), version=7))
    server.says("WATCH", PATH, ALL_WELL)
    async with informing(server, tmp_path) as (informer, shelf):
        await shelf.contains({"a": 1})
        await informer.synced.wait()


async def test_silent_connection_is_closed_without_losing_events(server, tmp_path):
    server.says("GET", PATH, listing(thing("a", 1), version=7))
    server.says("WATCH", PATH, ALL_WELL, watching(event("ADDED", thing("b", 8)), then="hang"))
    async with informing(server, tmp_path, silence=0.1) as (_, shelf):
        await shelf.contains({"a": 1, "b": 8})
        assert shelf.replaced == 1


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(watching(event("ADDED", thing("b", 8))[:-9]), id="end-in-the-middle-of-a-line"),
        pytest.param(watching(event("ADDED", thing("b", 8))[:-9], then="cut"), id="cut"),
        pytest.param(watching(b"<html>\n"), id="not-json"),
        pytest.param(watching(event("ERROR", {"kind": "Status", "code": 500, "message": "etcd"})), id="error-500"),
        pytest.param(refusing(429), id="too-many-requests"),
        pytest.param(refusing(503), id="unavailable"),
    ],
)
async def test_broken_watch_resumes_at_its_version(server, tmp_path, broken):
    server.says("GET", PATH, listing(thing("a", 1), version=7))
    server.says("WATCH", PATH, broken, watching(event("ADDED", thing("b", 8)), then="hang"))
    async with informing(server, tmp_path) as (_, shelf):
        await shelf.contains({"a": 1, "b": 8})
        assert shelf.replaced == 1
    assert [watch["resourceVersion"] for watch in server.seen("WATCH")] == ["7", "7"]


async def unavailable(_: web.Request) -> web.Response:
    """Answer as the aggregation layer does while the server behind it restarts."""
    return web.Response(status=503, text="service unavailable\n")


async def test_restart_of_aggregated_server_causes_one_relist(server, tmp_path):
    server.says(
        "GET",
        PATH,
        listing(thing("a", 1), version=7),
        unavailable,
        listing(thing("a", 1), thing("b", 8), version=9),
    )
    incomplete = watching(event("BOOKMARK", thing("", 8)), event("ADDED", thing("b", 8))[:-9], then="cut")
    server.says("WATCH", PATH, incomplete, unavailable, refusing(410), ALL_WELL)
    with capture_logs() as logged:
        async with informing(server, tmp_path) as (_, shelf):
            await shelf.contains({"a": 1, "b": 8})
            assert shelf.replaced == 2
    assert [each["log_level"] for each in logged if each["log_level"] not in {"debug", "info", "warning"}] == []
    assert not any("exc_info" in each for each in logged)


async def test_repeated_empty_watches_cause_a_relist(server, tmp_path):
    server.says("GET", PATH, listing(thing("a", 1), version=7))
    server.says("WATCH", PATH, watching(b'{"type": "ADDED", "object": {"meta', then="cut"))
    async with informing(server, tmp_path) as (_, shelf):
        await shelf.was_replaced(2)


async def test_event_older_than_the_version_causes_a_relist(server, tmp_path):
    server.says("GET", PATH, listing(thing("a", 1), version=7), listing(thing("a", 9), version=10))
    server.says("WATCH", PATH, watching(event("MODIFIED", thing("a", 9)), event("MODIFIED", thing("a", 8))), ALL_WELL)
    async with informing(server, tmp_path) as (_, shelf):
        await shelf.was_replaced(2)
        assert shelf.things == {"a": "9"}


async def test_restored_server_is_unsynced_until_relist(server, tmp_path):
    asked, release = asyncio.Event(), asyncio.Event()

    async def slow_list(request):
        asked.set()
        await release.wait()
        return await listing(thing("old", 2), version=3)(request)

    server.says("GET", PATH, listing(thing("a", 5), version=7), listing(version=3), slow_list)
    server.says("WATCH", PATH, watching(), ALL_WELL)
    async with informing(server, tmp_path) as (informer, shelf):
        await shelf.contains({"a": 5})
        async with asyncio.timeout(LIMIT_SECONDS):
            await asked.wait()
        assert not informer.synced.is_set()
        release.set()
        await shelf.contains({"old": 2})
        assert informer.synced.is_set()
        assert shelf.voided == 1


async def test_unreadable_object_does_not_block_others(server, tmp_path):
    server.says("GET", PATH, listing(thing("bad", 1, poison=True), thing("a", 2), version=7))
    server.says(
        "WATCH",
        PATH,
        watching(event("ADDED", thing("worse", 8, poison=True)), event("ADDED", thing("b", 9)), then="hang"),
    )
    async with informing(server, tmp_path) as (informer, shelf):
        await shelf.contains({"a": 2, "b": 9})
        assert informer.decode_failures == 2
        assert shelf.replaced == 1


async def test_deleted_unreadable_object_is_removed(server, tmp_path):
    server.says("GET", PATH, listing(thing("a", 2), version=7), listing(version=9))
    server.says("WATCH", PATH, watching(event("DELETED", thing("a", 8, poison=True)), then="hang"), ALL_WELL)
    async with informing(server, tmp_path) as (_, shelf):
        await shelf.contains({})
        # A tenant that creates and deletes such objects must not cause repeated lists.
        assert shelf.replaced == 1


async def test_object_that_becomes_unreadable_keeps_its_last_state(server, tmp_path):
    """Its workload must stay charged: a list without the object would mean that it was deleted."""
    bad = thing("a", 8, poison=True)
    server.says("GET", PATH, listing(thing("a", 2), version=7), listing(bad, thing("b", 3), version=11))
    server.says("WATCH", PATH, watching(event("MODIFIED", bad), event("ADDED", thing("c", 10)), then="hang"), ALL_WELL)
    async with informing(server, tmp_path) as (informer, shelf):
        await shelf.contains({"a": 2, "c": 10})
        informer.relist()
        await shelf.contains({"a": 2, "b": 3})
        assert informer.unreadable == 1


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
    async with informing(server, tmp_path) as (informer, shelf):
        await shelf.contains({"a": 3, "b": 9})
        assert shelf.replaced == 1
        assert informer.unreadable == 1


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


async def test_informer_is_synced_after_the_first_list(server, tmp_path):
    server.says("GET", PATH, refusing(503), listing(thing("a", 2), version=7))
    server.says("WATCH", PATH, ALL_WELL)
    async with informing(server, tmp_path) as (informer, shelf):
        assert not informer.synced.is_set()
        await informer.synced.wait()
        assert shelf.things == {"a": "2"}


async def test_relist_request_unsyncs_until_the_list_is_applied(server, tmp_path):
    server.says("GET", PATH, listing(thing("a", 2), version=7), listing(thing("a", 2), thing("b", 3), version=7))
    server.says("WATCH", PATH, ALL_WELL)
    async with informing(server, tmp_path) as (informer, shelf):
        await shelf.contains({"a": 2})
        informer.relist()
        assert not informer.synced.is_set()
        await shelf.contains({"a": 2, "b": 3})
        assert informer.synced.is_set()
        assert shelf.replaced == 2


async def test_repeated_relist_requests_cause_one_list(server, tmp_path):
    server.says("GET", PATH, listing(thing("a", 2), version=7), listing(thing("b", 3), version=8))
    server.says("WATCH", PATH, refusing(410), ALL_WELL)
    async with informing(server, tmp_path) as (informer, shelf):
        async with asyncio.timeout(LIMIT_SECONDS):
            while shelf.replaced < 12:
                informer.relist()
                informer.relist()
                await asyncio.sleep(0.005)
        await shelf.contains({"b": 3})
        await informer.synced.wait()


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
    async with informing(server, tmp_path, is_known=lambda known: known.name == "a") as (informer, shelf):
        await shelf.contains({"b": 9})
        assert informer.version == "10"


class LongShelf(Shelf):
    """A sink that applies a list object by object, and records how many in each turn of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.informer: Informer[Any] | None = None
        self.slices: list[int] = []
        self.synced_between_slices = False
        self._turn_has_begun = self._is_replacing = False

    def replace_in_steps(self, objects: Sequence[Any], *, unreadable: Iterable[tuple[str, str]] = ()) -> Iterator[None]:
        self._is_replacing = True
        for obj in objects:
            self.upsert(obj)
            self._count()
            yield
        for key in self.things.keys() - {name(obj) for obj in objects}:
            del self.things[key]
            self._count()
            yield
        self._is_replacing = False
        self.replaced += 1
        self.changed.set()

    def _count(self) -> None:
        if not self._turn_has_begun:
            self._turn_has_begun = True
            self.slices.append(0)
            asyncio.get_running_loop().call_soon(self._end_turn)
        self.slices[-1] += 1

    def _end_turn(self) -> None:
        self._turn_has_begun = False
        if self._is_replacing and self.informer is not None:
            self.synced_between_slices |= self.informer.is_synced


@asynccontextmanager
async def informing_long(server: ScriptedServer, tmp_path: Path) -> AsyncIterator[tuple[Informer[Any], LongShelf]]:
    async with informing(server, tmp_path) as (informer, _):
        shelf = LongShelf()
        shelf.informer, informer._sink = informer, shelf
        yield informer, shelf


def things(count: int) -> list[dict[str, Any]]:
    return [thing(f"t{number}", 1) for number in range(count)]


async def test_long_list_is_applied_in_slices_before_it_is_synced(server, tmp_path):
    server.says("GET", PATH, listing(*things(1_800), version=7))
    server.says("WATCH", PATH, ALL_WELL)
    async with informing_long(server, tmp_path) as (informer, shelf):
        await informer.synced.wait()
        assert (sum(shelf.slices), max(shelf.slices)) == (1_801, 500)
        assert not shelf.synced_between_slices


async def test_deletions_of_a_relist_are_sliced_and_unsync(server, tmp_path):
    server.says("GET", PATH, listing(*things(1_800), version=7), listing(*things(300), version=9))
    server.says("WATCH", PATH, refusing(410), ALL_WELL)
    async with informing_long(server, tmp_path) as (informer, shelf):
        await shelf.was_replaced(2)
        assert len(shelf.things) == 300
        assert max(shelf.slices) == 500
        assert not shelf.synced_between_slices
        assert informer.synced.is_set()


async def test_relist_request_while_a_list_is_applied_lists_again(server, tmp_path):
    server.says("GET", PATH, listing(*things(1_800), version=7), listing(thing("new", 8), version=8))
    server.says("WATCH", PATH, ALL_WELL)
    async with informing_long(server, tmp_path) as (informer, shelf):
        async with asyncio.timeout(LIMIT_SECONDS):
            while len(shelf.things) < 500:  # noqa: ASYNC110 -- between two slices
                await asyncio.sleep(0)
        informer.relist()
        await informer.synced.wait()
        assert shelf.things == {"new": "8"}
