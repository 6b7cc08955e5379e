"""Kubernetes events about pending, admitted and evicted workloads."""

from controller.api.keys import EVENTS
from tests.integration.events import wait_for_event
from tests.rig.faults import ErrorReply
from tests.rig.harness import open_harness
from tests.rig.proxy import Call
from tests.waiting import poll


def is_event_write(call: Call) -> bool:
    return call.is_event and call.method in {"POST", "PATCH"}


async def test_job_and_binding_get_pending_and_admitted_events(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="2")
        await harness.karmada.job("first", "q", cpu=2)
        await harness.admitted("first")
        await harness.karmada.job("next", "q", cpu=2)
        await harness.karmada.job("lost", "no-such-queue")
        for kind, name in (("Job", "next"), ("ResourceBinding", "next-job")):
            event = await wait_for_event(harness, "InsufficientCapacity", kind, name)
            assert "all usable clusters together have 0 left; it starts when workloads finish" in event["note"]
            assert (event["type"], event["action"]) == ("Normal", "Wait")
            assert event["reportingController"] == "volcano-global.io/controller"
        lost = await wait_for_event(harness, "QueueNotFound", "Job", "lost")
        assert (lost["type"], "create the queue" in lost["note"]) == ("Warning", True)
        event = await wait_for_event(harness, "Admitted", "Job", "first")
        assert event["note"] == "admitted to m1 by queue 'q'"
        stored = harness.karmada.stored_bindings()["first-job"]
        assert event["related"]["uid"] == stored["metadata"]["uid"]
        await harness.karmada.phase("first", "Completed")
        await wait_for_event(harness, "Admitted", "Job", "next")


async def test_admission_does_not_wait_for_event_writes(plane, tmp_path):
    """The server rejects all events: every workload is still admitted, and dropped events are counted."""
    async with open_harness(plane, tmp_path, "--event-backlog", "5") as harness:
        harness.proxy.add(ErrorReply(is_event_write, times=1, status=403))
        harness.proxy.add(ErrorReply(is_event_write, status=429, retry_after=1))
        await harness.start(cpu="40")
        for number in range(30):
            await harness.karmada.job(f"j{number}", "q")
        await harness.done(*(f"j{number}" for number in range(30)))
        counted = "volcano_global_events_total"
        await poll(lambda: harness.controller.metric(counted), "20 events", until=lambda events: events >= 20)
        await harness.controller.wait_for_log("event rejected")


async def test_zero_event_rate_disables_events(plane, tmp_path):
    async with open_harness(plane, tmp_path, "--events-per-second", "0") as harness:
        await harness.start()
        await harness.karmada.job("one", "q")
        await harness.done("one")
        await harness.karmada.job("lost", "no-such-queue")
        await harness.controller.wait_for_log("QueueNotFound")
        assert harness.proxy.count(lambda call: EVENTS.plural in call.path) == 0
