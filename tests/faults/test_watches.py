"""F4: watches that fail in every way that a server or the line between may think of."""

import json

import pytest

from controller.api.keys import CLUSTERS, PRIORITY_CLASSES, QUEUES
from controller.cache.informer import WatchOptions
from controller.cache.informer_factory import build_informers
from controller.cache.store import Store
from tests.rig.faults import DropEvent, DropRequest, ErrorReply, ScriptedWatch, expired, watches
from tests.rig.harness import open_harness

BINDINGS = "resourcebindings"
BOOKMARK = json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}).encode() + b"\n"
FAULTS = {
    "http-410": lambda: ErrorReply(watches, 6, 410),
    "http-429": lambda: ErrorReply(watches, 6, 429, retry_after=1),
    "http-500": lambda: ErrorReply(watches, 6, 500),
    "http-400": lambda: ErrorReply(watches, 6, 400),
    "no-connection": lambda: DropRequest(watches, 12),
    "410-in-the-stream": lambda: ScriptedWatch(BINDINGS, expired()),
    "half-a-line": lambda: ScriptedWatch(BINDINGS, b'{"type":"MODIFIED","object":{"metadata"'),
    "no-json": lambda: ScriptedWatch(BINDINGS, b"<html>gateway</html>\n"),
    "ends-at-once": lambda: ScriptedWatch(BINDINGS, b"", "end", times=5),
    "bookmark-of-the-past": lambda: ScriptedWatch(BINDINGS, BOOKMARK),
    "silence": lambda: ScriptedWatch(BINDINGS, b"", "hang"),
    "a-line-without-end": lambda: ScriptedWatch(BINDINGS, b"x" * (17 * 2**20)),
}
SAMPLE = ("half-a-line",)


async def survived(plane, tmp_path, fault) -> None:
    """The first watch of the bindings comes to grief while a job comes and ends."""
    async with open_harness(plane, tmp_path) as stage:
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="1")
        stage.proxy.add(fault)
        await stage.controller.start()
        for number in range(3):
            await stage.karmada.job(f"j{number}", "q")
        await stage.done("j0", "j1", "j2")
        await stage.expect_pending_reasons()
        await stage.expect_no_writes(seconds=0.3)
        listed = stage.proxy.count(lambda call: call.method == "GET" and "limit=500" in call.query)
        assert listed <= 40, "it lists again and again"


@pytest.mark.parametrize("name", SAMPLE)
async def test_a_broken_watch_of_the_sample_is_got_over(plane, tmp_path, name):
    await survived(plane, tmp_path, FAULTS[name]())


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
async def test_a_broken_watch_is_got_over(plane, tmp_path, name):
    await survived(plane, tmp_path, FAULTS[name]())


async def test_a_binding_whose_coming_was_lost_in_silence_is_found(plane, tmp_path):
    async with open_harness(plane, tmp_path) as stage:
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="1")
        lost = DropEvent(BINDINGS, "ADDED")
        stage.proxy.add(lost)
        await stage.controller.start()
        await stage.karmada.job("j", "q")
        await stage.done("j")
        assert lost.lost
        await stage.controller.wait_for_log("an event was lost")


@pytest.mark.long
async def test_the_room_of_one_whose_going_was_lost_in_silence_is_found(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="1")
        await stage.controller.start()
        await stage.karmada.job("goes", "q")
        await stage.admitted("goes")
        await stage.karmada.job("waits", "q")
        lost = DropEvent(BINDINGS, "DELETED")
        stage.proxy.add(lost)
        stage.proxy.close_connections()
        await stage.karmada.delete(stage.karmada.path("goes"))
        await stage.admitted("waits")


async def test_what_was_changed_unheard_is_known_by_its_version(plane, tmp_path):
    """Every kind that decisions rest on: nothing is said while nothing was missed, and what was when it was."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="1")
        await stage.karmada.priority_class("rig-high", 1000)
        await stage.karmada.job("j", "q")
        changed = {
            "queues": f"{QUEUES.path}/q",
            "clusters": f"{CLUSTERS.path}/m1",
            "priorityclasses": f"{PRIORITY_CLASSES.path}/rig-high",
            "jobs": f"{stage.karmada.folder('jobs')}/j",
            "resourcebindings": stage.karmada.path("j"),
        }
        held = build_informers(stage.karmada.api, Store(), WatchOptions())
        for kind, path in changed.items():
            informer = held[kind]
            informer._apply(*await informer._list())
            compare = informer._comparison
            assert compare is not None
            for turn in range(20):
                assert await compare.difference(informer.version, lacking=0) is None, f"{kind}, turn {turn}"
            await stage.karmada.merge(path, {"metadata": {"annotations": {"seen": "no"}}})
            version = (await stage.karmada.api.list_page(informer.path, limit=1)).metadata.resource_version
            found = [await compare.difference(version, lacking=0) for _ in range(20)]
            told = [item for item in found if item is not None]
            assert 1 <= len(told) <= 2, kind
            assert "is cached in version" in told[0]


@pytest.mark.long
async def test_a_server_that_is_starting_is_not_stormed(plane, tmp_path):
    async with open_harness(plane, tmp_path) as stage:
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="1")
        await stage.karmada.job("j", "q")
        stage.proxy.add(ErrorReply(lambda call: not call.is_lease, 30, 429, retry_after=1))
        await stage.controller.start()
        await stage.done("j")
        assert stage.proxy.count(lambda call: call.method == "GET" and not call.is_lease) < 120


@pytest.mark.long
async def test_no_decision_is_made_before_everything_was_applied(plane, tmp_path):
    """Everything is listed but the classes that order the jobs: nobody is admitted, and it is not ready."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.priority_class("rig-high", 1000)
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="1")
        await stage.karmada.job("a-low", "q")
        await stage.karmada.job("z-high", "q", priority="rig-high")
        held = ErrorReply(lambda call: call.resource == "priorityclasses" and not call.is_watch)
        stage.proxy.add(held)
        await stage.controller.begin()
        await stage.controller.wait_for_log("page failed")
        await stage.expect_no_writes()
        stage.proxy.clear_faults()
        await stage.until(lambda seen: any(item.admitted for item in seen.values()), "one admitted")
        assert stage.bindings()["a-low"].suspended
