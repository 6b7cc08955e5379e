"""Volcano Commands in the control plane: `vcctl queue operate` and `vcctl job resume`."""

import asyncio
from typing import Any

from controller.api.keys import COMMANDS, JOBS
from tests.integration.events import wait_for_event
from tests.rig.faults import ErrorReply
from tests.rig.harness import Harness, open_harness


async def command(harness: Harness, action: str, kind: str, name: str, *, namespace: str = "", **target: Any) -> None:
    """Create a Command as vcctl does, for a queue in the namespace ``default``."""
    version = "scheduling.volcano.sh/v1beta1" if kind == "Queue" else "batch.volcano.sh/v1alpha1"
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": "", "controller": True, **target}
    usual = "default" if kind == "Queue" else harness.karmada.namespace
    head = {"apiVersion": COMMANDS.api_version, "kind": "Command"}
    metadata = {"generateName": f"{name}-{action.lower()}-"}
    folder = COMMANDS.item_path(namespace or usual, "").rstrip("/")
    await harness.karmada.create(folder, {**head, "metadata": metadata, "action": action, "target": reference})


def state(harness: Harness, name: str) -> str:
    return harness.history.now["queues"]["", name].get("status", {}).get("state", "")


async def wait_for_state(harness: Harness, name: str, expected: str) -> None:
    await harness.until(lambda _: state(harness, name) == expected, f"queue {name} {expected}")


def has_commands(harness: Harness) -> bool:
    places = {harness.karmada.namespace, "default"}
    return any(namespace in places for namespace, _ in harness.history.now.get("commands", {}))


async def test_queue_command_in_tenant_namespace_is_refused(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.queue("target")
        await harness.karmada.cluster("m1", cpu="4")
        await harness.controller.start()
        await command(harness, "CloseQueue", "Queue", "target", namespace=harness.karmada.namespace)
        await harness.controller.wait_for_log("command refused")
        await harness.history.until(lambda _: not has_commands(harness), "no command left")
        await harness.expect_no_writes(seconds=0.5)
        assert state(harness, "target") in {"", "Open"}


async def test_closed_queues_admit_nothing_until_they_are_opened(plane, tmp_path):
    """A queue closes when its last workload is gone, and opens with its parent."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.queue("top")
        await harness.start(parent="top")
        await harness.karmada.job("runs", "q")
        await harness.admitted("runs")
        await command(harness, "CloseQueue", "Queue", "top")
        await wait_for_state(harness, "q", "Closing")
        await harness.karmada.job("late", "q")
        await wait_for_event(harness, "QueueClosed", "Job", "late")
        for name in ("runs", "late"):
            await harness.karmada.delete(harness.karmada.path(name))
        await wait_for_state(harness, "q", "Closed")
        await wait_for_event(harness, "CloseQueue", "Queue", "top", namespace="default")
        await command(harness, "OpenQueue", "Queue", "q")
        event = await wait_for_event(harness, "OpenQueueFailed", "Queue", "q", namespace="default")
        assert "open the parent first" in event["note"]
        await command(harness, "OpenQueue", "Queue", "top")
        await wait_for_state(harness, "q", "Open")
        annotations = harness.history.now["queues"]["", "q"]["metadata"]["annotations"]
        assert annotations == {"volcano.sh/closed-by-parent": "false"}
        await harness.karmada.job("next", "q")
        await harness.admitted("next")
        await harness.history.until(lambda _: not has_commands(harness), "no command left")


async def test_d8_aborted_workload_waits_for_resume_or_new_template(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start()
        for name in ("resumed", "changed"):
            await harness.karmada.job(name, "q")
            await harness.admitted(name)
            await harness.karmada.phase(name, "Aborted")
            await harness.history.until(lambda _, name=name: harness.record(name).get("aborted") is True, "evicted")
            # Karmada deletes the Works of an evicted binding and their status.
            await harness.karmada.delete_works(name)
            await wait_for_event(harness, "Aborted", "Job", name, action="Wait")
        path = f"{harness.karmada.folder(JOBS)}/changed"
        await harness.karmada.merge(path, {"metadata": {"labels": {"seen": "yes"}}})
        await harness.karmada.job("other", "q")
        await harness.admitted("other")
        await harness.controller.stop()
        await harness.controller.start()
        await harness.controller.wait_for_log('"reason":"Aborted"')
        await harness.expect_no_writes(seconds=0.5)
        assert harness.bindings()["resumed"].suspended
        assert harness.bindings()["changed"].suspended, "a label does not change the pods"
        await command(harness, "ResumeJob", "Job", "resumed")
        await harness.admitted("resumed")
        assert harness.record("resumed")["evictions"] == 1
        assert harness.bindings()["changed"].suspended
        await harness.karmada.merge(path, {"spec": {"minAvailable": 1, "maxRetry": 5}})
        await harness.admitted("changed")
        await harness.history.until(lambda _: not has_commands(harness), "no command left")


async def test_unsupported_commands_are_ignored_and_others_run_once(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.queue("old")
        harness.proxy.add(
            ErrorReply(lambda call: call.method == "PATCH" and "/queues/q/status" in call.path, 3, status=500)
        )
        await harness.start()
        await harness.karmada.job("runs", "q")
        await harness.admitted("runs")
        for action, kind, name in (("RestartJob", "Job", "runs"), ("CloseQueue", "PodGroup", "q")):
            await command(harness, action, kind, name)
        await command(harness, "CloseQueue", "Queue", "old", uid="of-a-deleted-queue")
        await command(harness, "CloseQueue", "Queue", "q")
        await command(harness, "CloseQueue", "Queue", "no-such-queue")
        await wait_for_state(harness, "q", "Closing")
        await asyncio.sleep(0.5)
        left = {name for namespace, name in harness.history.now["commands"] if namespace == harness.karmada.namespace}
        assert sorted(name.split("-")[1] for name in left) == ["closequeue", "restartjob"]
        assert state(harness, "old") != "Closed"
        await harness.karmada.api.delete(harness.karmada.folder(COMMANDS))
