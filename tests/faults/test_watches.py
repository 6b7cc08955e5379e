"""F4 and F5: watches fail, or lose events; the simulation has every fault of requests and events."""

import json

import pytest

from controller.api.keys import CLUSTERS, JOBS, PRIORITY_CLASSES, QUEUES
from controller.cache.dynamic_informers import build_informers
from controller.cache.store import Store
from controller.kube.informer import WatchOptions
from tests.rig.faults import DropEvent, ErrorReply, ScriptedWatch, watches
from tests.rig.harness import open_harness

BINDINGS = "resourcebindings"
BOOKMARK = json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}).encode() + b"\n"
FAULTS = {
    "http-410": lambda: ErrorReply(watches, 6, 410),
    "half-a-line": lambda: ScriptedWatch(BINDINGS, b'{"type":"MODIFIED","object":{"metadata"'),
    "no-json": lambda: ScriptedWatch(BINDINGS, b"<html>gateway</html>\n"),
    "bookmark-of-the-past": lambda: ScriptedWatch(BINDINGS, BOOKMARK),
    "silence": lambda: ScriptedWatch(BINDINGS, b"", "hang"),
    "a-line-without-end": lambda: ScriptedWatch(BINDINGS, b"x" * (17 * 2**20)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "half-a-line" else pytest.mark.long) for name in FAULTS]
)
async def test_every_watch_fault_is_recovered(plane, tmp_path, name):
    """The first watch of bindings breaks while jobs are created and finish."""
    async with open_harness(plane, tmp_path) as harness:
        harness.proxy.add(FAULTS[name]())
        await harness.start(cpu="1")
        for number in range(3):
            await harness.karmada.job(f"j{number}", "q")
        await harness.done("j0", "j1", "j2")
        await harness.expect_pending_reasons()
        await harness.expect_no_writes(seconds=0.3)
        listed = harness.proxy.count(lambda call: call.method == "GET" and "limit=500" in call.query)
        assert listed <= 40, "it lists again and again"


async def test_binding_with_a_lost_create_event_is_found(plane, tmp_path):
    async with open_harness(plane, tmp_path) as harness:
        lost = DropEvent(BINDINGS, "ADDED")
        harness.proxy.add(lost)
        await harness.start(cpu="1")
        await harness.karmada.job("j", "q")
        await harness.done("j")
        assert lost.lost
        await harness.controller.wait_for_log("an event was lost")


async def test_audit_finds_lost_changes_of_every_kind(plane, tmp_path):
    """Nothing is reported while the cache is complete; a lost event is reported for every kind."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.prepare("j", cpu="1")
        await harness.karmada.priority_class("rig-high", 1000)
        changed = {
            "queues": f"{QUEUES.path}/q",
            "clusters": f"{CLUSTERS.path}/m1",
            "priorityclasses": f"{PRIORITY_CLASSES.path}/rig-high",
            "jobs": f"{harness.karmada.folder(JOBS)}/j",
            "resourcebindings": harness.karmada.path("j"),
        }
        held = build_informers(harness.karmada.api, Store(), WatchOptions())
        for kind, path in changed.items():
            informer = held[kind]
            await informer._apply(*await informer._list())
            audit = informer._audit
            assert audit is not None
            for turn in range(20):
                assert await audit.find_difference(informer.version) is None, f"{kind}, turn {turn}"
            await harness.karmada.merge(path, {"metadata": {"annotations": {"seen": "no"}}})
            version = (await harness.karmada.api.list_page(informer.path, limit=1)).metadata.resource_version
            differences = [await audit.find_difference(version) for _ in range(20)]
            told = [item for item in differences if item is not None]
            assert 1 <= len(told) <= 2, kind
            assert "is cached in version" in told[0].message


@pytest.mark.long
async def test_no_decision_before_all_lists_are_applied(plane, tmp_path):
    """Only the PriorityClasses are missing: nothing is admitted, and the controller is not ready."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.priority_class("rig-high", 1000)
        await harness.prepare("a-low", cpu="1")
        await harness.karmada.job("z-high", "q", priority="rig-high")
        held = ErrorReply(lambda call: call.resource == "priorityclasses" and not call.is_watch)
        harness.proxy.add(held)
        await harness.controller.begin()
        await harness.controller.wait_for_log("page failed")
        await harness.expect_no_writes()
        harness.proxy.clear_faults()
        await harness.until(lambda seen: any(item.admitted for item in seen.values()), "one admitted")
        assert harness.bindings()["a-low"].suspended
