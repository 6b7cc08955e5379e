"""Volcano Commands in the control plane: `vcctl queue operate` and `vcctl job resume`."""

import asyncio
from typing import Any

from controller.api.keys import COMMANDS, QUEUES
from tests.integration.events import wait_for_event
from tests.rig.faults import ErrorReply
from tests.rig.harness import Harness, open_harness


async def command(harness: Harness, action: str, kind: str, name: str, *, namespace: str = "", **target: Any) -> str:
    """Create a Command as vcctl does, for a queue in the namespace ``default``; return its path."""
    version = "scheduling.volcano.sh/v1beta1" if kind == "Queue" else "batch.volcano.sh/v1alpha1"
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": "", "controller": True, **target}
    usual = "default" if kind == "Queue" else harness.karmada.namespace
    folder = COMMANDS.item_path(namespace or usual, "").rstrip("/")
    made = await harness.karmada.create(
        folder,
        {
            "apiVersion": COMMANDS.api_version,
            "kind": "Command",
            "metadata": {"generateName": f"{name}-{action.lower()}-"},
            "action": action,
            "target": reference,
        },
    )
    return f"{folder}/{made['metadata']['name']}"


def state(harness: Harness, name: str) -> str:
    return harness.history.now["queues"]["", name].get("status", {}).get("state", "")


async def wait_for_state(harness: Harness, name: str, expected: str) -> None:
    try:
        await harness.history.until(lambda _: state(harness, name) == expected, f"queue {name} {expected}")
    except AssertionError as error:
        raise AssertionError(
            f"{error}; it is {state(harness, name)}:\n{harness.controller.part.output[-3000:]}"
        ) from error


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


async def test_closed_queue_admits_nothing_until_it_is_opened(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start()
        await harness.karmada.job("runs", "q")
        await harness.admitted("runs")
        await command(harness, "CloseQueue", "Queue", "q")
        await wait_for_state(harness, "q", "Closing")
        await harness.karmada.job("late", "q")
        await wait_for_event(harness, "QueueClosed", "Job", "late")
        for name in ("runs", "late"):
            await harness.karmada.delete(harness.karmada.path(name))
        await wait_for_state(harness, "q", "Closed")
        await wait_for_event(harness, "CloseQueue", "Queue", "q", namespace="default")
        await command(harness, "OpenQueue", "Queue", "q")
        await wait_for_state(harness, "q", "Open")
        await harness.karmada.job("next", "q")
        await harness.admitted("next")
        await harness.history.until(lambda _: not has_commands(harness), "no command left")


async def test_child_queues_close_and_open_with_their_parent(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.queue("top")
        await harness.karmada.queue("left", parent="top")
        await harness.karmada.queue("right", parent="top")
        await harness.karmada.cluster("m1", cpu="4")
        await harness.controller.start()
        await command(harness, "CloseQueue", "Queue", "right")
        await wait_for_state(harness, "right", "Closed")
        await command(harness, "CloseQueue", "Queue", "top")
        await wait_for_state(harness, "left", "Closed")
        await command(harness, "OpenQueue", "Queue", "left")
        event = await wait_for_event(harness, "OpenQueueFailed", "Queue", "left", namespace="default")
        assert "open the parent first" in event["note"]
        await command(harness, "OpenQueue", "Queue", "top")
        await wait_for_state(harness, "left", "Open")
        assert state(harness, "right") == "Closed", "it was closed by a command of its own"
        assert harness.history.now["queues"]["", "left"]["metadata"]["annotations"] == {
            "volcano.sh/closed-by-parent": "false"
        }


async def create_aborted(harness: Harness, name: str, queue: str = "q") -> None:
    """Create a job, and abort it in its cluster after its admission."""
    await harness.karmada.job(name, queue)
    await harness.admitted(name)
    await harness.karmada.phase(name, "Aborted")
    await harness.history.until(lambda _: harness.record(name).get("aborted") is True, f"{name} evicted")
    # Karmada deletes the Works of an evicted binding and their status.
    await harness.karmada.delete_works(name)


async def test_d8_aborted_workload_is_pending_until_resumed(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start()
        await create_aborted(harness, "stopped")
        await harness.karmada.job("other", "q")
        await harness.admitted("other")
        await wait_for_event(harness, "Aborted", "Job", "stopped", action="Wait")
        await harness.expect_no_writes(seconds=0.5)
        assert harness.bindings()["stopped"].suspended
        await command(harness, "ResumeJob", "Job", "stopped")
        await harness.admitted("stopped")
        assert harness.record("stopped")["evictions"] == 1
        await harness.history.until(lambda _: not has_commands(harness), "no command left")


async def test_d8_aborted_workload_is_retried_after_template_change(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start()
        await create_aborted(harness, "stopped")
        await harness.controller.stop()
        path = f"{harness.karmada.folder('jobs')}/stopped"
        await harness.karmada.merge(path, {"metadata": {"labels": {"seen": "yes"}}})
        await harness.controller.start()
        await harness.controller.wait_for_log('"reason":"Aborted"')
        await harness.expect_no_writes(seconds=0.5)
        assert harness.bindings()["stopped"].suspended, "a label does not change the pods"
        await harness.karmada.merge(path, {"spec": {"minAvailable": 1, "maxRetry": 5}})
        await harness.admitted("stopped")


async def test_unsupported_commands_are_ignored_and_others_run_once(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.queue("q")
        await harness.karmada.queue("old")
        await harness.karmada.cluster("m1", cpu="4")
        harness.proxy.add(
            ErrorReply(lambda call: call.method == "PATCH" and "/queues/q/status" in call.path, 3, status=500)
        )
        await harness.controller.start()
        await harness.karmada.job("runs", "q")
        await harness.admitted("runs")
        for action, kind, name in (("AbortJob", "Job", "runs"), ("CloseQueue", "PodGroup", "q")):
            await command(harness, action, kind, name)
        await command(harness, "CloseQueue", "Queue", "old", uid="of-a-deleted-queue")
        await command(harness, "CloseQueue", "Queue", "q")
        await command(harness, "CloseQueue", "Queue", "no-such-queue")
        await wait_for_state(harness, "q", "Closing")
        await asyncio.sleep(0.5)
        left = {name for namespace, name in harness.history.now["commands"] if namespace == harness.karmada.namespace}
        assert sorted(name.split("-")[1] for name in left) == ["abortjob", "closequeue"]
        assert state(harness, "old") != "Closed"
        await harness.karmada.api.delete(COMMANDS.item_path(harness.karmada.namespace, "").rstrip("/"))
        assert QUEUES.plural in harness.history.now
