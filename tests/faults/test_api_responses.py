"""F1 and F9: error responses and lost responses to writes lose no admission and duplicate none."""

from collections import Counter

import pytest

from tests.rig.faults import Delay, DropReply, DropRequest, ErrorReply, Hold, writes
from tests.rig.harness import open_harness

ANSWERS = {
    "409": lambda chosen: ErrorReply(chosen, 1, 409),
    "422": lambda chosen: ErrorReply(chosen, 1, 422),
    "403": lambda chosen: ErrorReply(chosen, 1, 403),
    "404": lambda chosen: ErrorReply(chosen, 1, 404),
    "429": lambda chosen: ErrorReply(chosen, 1, 429, retry_after=2),
    "500": lambda chosen: ErrorReply(chosen, 1, 500),
    "503": lambda chosen: ErrorReply(chosen, 1, 503, retry_after=1),
    "504": lambda chosen: ErrorReply(chosen, 1, 504),
    "request-lost": lambda chosen: DropRequest(chosen, 1),
    "reply-lost": lambda chosen: DropReply(chosen, 1),
    "late": lambda chosen: Delay(chosen, 1, seconds=2),
}


def of(name: str):
    """Match the writes of one job's binding."""
    return lambda call: call.is_write and f"/{name}-job" in call.path


async def test_each_error_response_to_one_job_is_recovered(plane, tmp_path):
    async with open_harness(plane, tmp_path) as harness:
        for name, fault in ANSWERS.items():
            harness.proxy.add(fault(of(name)))
        await harness.start(*ANSWERS, cpu="9", capability={"cpu": "4"})
        await harness.done(*ANSWERS)
        writes_of = Counter(call.path for call in harness.proxy.calls if call.is_write)
        assert max(writes_of.values()) <= 2
        await harness.expect_no_writes(seconds=0.5)


async def test_permanent_rejection_backs_off_and_is_reported(plane, tmp_path):
    async with open_harness(plane, tmp_path) as harness:
        harness.proxy.add(ErrorReply(writes, status=403, message="never on a Sunday"))
        await harness.start()
        await harness.karmada.job("one", "q")
        await harness.controller.wait_for_log("patch rejected")
        await harness.controller.wait_for_log("never on a Sunday")
        await harness.controller.wait_for_log('"reason":"StartupBackoff"')
        await harness.expect_pending_reasons()
        assert harness.proxy.writes <= 2
        harness.proxy.clear_faults()
        await harness.done("one")


@pytest.mark.long
async def test_retry_after_is_honoured_and_keeps_the_order(plane, tmp_path):
    async with open_harness(plane, tmp_path) as harness:
        harness.proxy.add(ErrorReply(of("first"), 1, 429, retry_after=2))
        await harness.start(cpu="2")
        await harness.karmada.job("first", "q", cpu=2)
        await harness.history.until(lambda _: harness.proxy.writes, "first write")
        await harness.karmada.job("second", "q", cpu=1)
        await harness.done("first", "second")
        order = [item.key[1] for item in harness.history.of("resourcebindings") if _resumed(item)]
        assert order == ["first-job", "second-job"]


def _resumed(change) -> bool:
    before, after = ((state or {}).get("spec", {}).get("suspension") for state in (change.before, change.after))
    return before == {"scheduling": True} and after == {"scheduling": False}


@pytest.mark.long
async def test_event_during_admission_write_frees_no_capacity(plane, tmp_path):
    """A job with higher priority arrives meanwhile and would use the capacity."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.priority_class("rig-high", 1000)
        await harness.prepare(cpu="2")
        held = Hold(of("first"), 1)
        harness.proxy.add(held)
        await harness.karmada.job("first", "q", cpu=2)
        await harness.controller.start()
        await held.arrived.wait()
        await harness.karmada.job("second", "q", cpu=2, priority="rig-high")
        await harness.controller.wait_for_log("/second")
        await harness.karmada.merge(harness.karmada.path("first"), {"metadata": {"labels": {"seen": "yes"}}})
        await harness.expect_no_writes(seconds=0.5)
        held.opened.set()
        await harness.admitted("first")
        await harness.expect_pending_reasons()
        assert harness.bindings()["second"].suspended


@pytest.mark.long
async def test_admission_with_lost_reply_keeps_its_capacity(plane, tmp_path):
    """The reply and later reads are lost; the capacity is not assigned twice."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.prepare(cpu="2")
        harness.proxy.add(DropReply(of("first"), 1))
        unseen = ErrorReply(lambda call: call.method == "GET" and "/first-job" in call.path, status=503)
        harness.proxy.add(unseen)
        harness.proxy.add(ErrorReply(lambda call: call.is_watch and call.resource == "resourcebindings", status=503))
        await harness.karmada.job("first", "q", cpu=2)
        await harness.controller.start()
        await harness.admitted("first")
        await harness.karmada.job("second", "q", cpu=2)
        await harness.controller.wait_for_log("patch outcome unknown")
        await harness.expect_no_writes()
        harness.proxy.clear_faults()
        await harness.controller.wait_for_log("workload admitted")
        assert harness.bindings()["second"].suspended
