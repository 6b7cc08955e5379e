"""Statuses of Volcano Jobs that no cluster reports, written by the controller."""

import asyncio
from datetime import datetime
from typing import Any

from controller.api.keys import JOBS, QUEUES
from controller.kube.timing import wall_clock
from tests.integration.events import wait_for_event
from tests.rig.harness import Harness, open_harness
from tests.waiting import poll


async def job_state(harness: Harness, name: str, reason: str, *, phase: str = "Pending") -> dict[str, Any]:
    """Wait for a reason in the status of a job; return its state."""
    status = await poll(
        lambda: _status(harness, name),
        f"job {name} {phase} as {reason}",
        until=lambda seen: {"phase": phase, "reason": reason}.items() <= seen.get("state", {}).items(),
        log=harness.controller.log,
    )
    return status["state"]


async def report(harness: Harness, name: str, phase: str) -> None:
    """Write the status as Karmada does: into the binding, and then into the job."""
    await harness.karmada.phase(name, phase)
    path = f"{JOBS.item_path(harness.karmada.namespace, name)}/status"
    await harness.karmada.merge(path, {"status": {"state": {"phase": phase, "reason": None, "message": None}}})


async def test_pending_job_shows_reason_until_its_cluster_reports(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="2")
        await harness.karmada.job("first", "q", cpu=2)
        await harness.admitted("first")
        assert (await job_state(harness, "first", "Admitted"))["message"].startswith("admitted to m1")
        await report(harness, "first", "Running")
        await harness.karmada.job("next", "q", cpu=2)
        state = await job_state(harness, "next", "InsufficientCapacity")
        assert "pending in queue 'q': it requests 2 cpu" in state["message"]
        assert abs(wall_clock() / 1000 - _seconds(state["lastTransitionTime"])) < 60
        assert (await _status(harness, "first"))["state"]["phase"] == "Running"
        await report(harness, "first", "Completed")
        await job_state(harness, "next", "Admitted")
        await harness.controller.stop()
        await harness.controller.start()
        await harness.expect_pending_reasons()
        await harness.expect_no_writes(statuses=True)


async def test_job_that_no_policy_selects_is_reported(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="2")
        uid = await harness.karmada.template("alone", "q")
        event = await wait_for_event(harness, "NoMatchingPolicy", "Job", "alone", seconds=90)
        assert (event["type"], "no PropagationPolicy selects it" in event["note"]) == ("Warning", True)
        await job_state(harness, "alone", "NoMatchingPolicy")
        await harness.karmada.bind("alone", uid)
        await job_state(harness, "alone", "Admitted")


async def test_statuses_can_be_switched_off_and_on(plane, tmp_path):
    off = {"status": {"pendingJobs": False, "queues": False}}
    async with open_harness(plane, tmp_path, configuration=off, plays=False) as harness:
        await harness.start(cpu="2")
        await harness.karmada.job("lost", "no-such-queue")
        await wait_for_event(harness, "QueueNotFound", "Job", "lost")
        await asyncio.sleep(1)
        assert await _status(harness, "lost") == {}
        assert "status" not in await harness.karmada.read(f"{QUEUES.path}/q")
        harness.configure()
        await job_state(harness, "lost", "QueueNotFound")


async def _status(harness: Harness, name: str) -> dict[str, Any]:
    return (await harness.karmada.read(JOBS.item_path(harness.karmada.namespace, name))).get("status") or {}


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
