"""Volcano's Commands in the control plane: what `vcctl queue operate` and `vcctl job resume` ask for is done there."""

import asyncio
import json
from typing import Any

from controller.api.keys import ADMISSION_ANNOTATION, COMMANDS, QUEUES
from tests.answers.events import wait_for_event
from tests.rig.faults import ErrorReply
from tests.rig.harness import Harness, open_harness


async def command(stage: Harness, action: str, kind: str, name: str, *, namespace: str = "", **target: Any) -> str:
    """Create a Command as vcctl does, one of a queue in the namespace ``default``; return its path."""
    version = "scheduling.volcano.sh/v1beta1" if kind == "Queue" else "batch.volcano.sh/v1alpha1"
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": "", "controller": True, **target}
    usual = "default" if kind == "Queue" else stage.karmada.namespace
    folder = COMMANDS.item_path(namespace or usual, "").rstrip("/")
    made = await stage.karmada.create(
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


def state(stage: Harness, name: str) -> str:
    return stage.history.now["queues"]["", name].get("status", {}).get("state", "")


async def becomes(stage: Harness, name: str, expected: str) -> None:
    try:
        await stage.history.until(lambda _: state(stage, name) == expected, f"queue {name} {expected}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it is {state(stage, name)}:\n{stage.controller.part.output[-3000:]}") from error


def is_left(stage: Harness) -> bool:
    places = {stage.karmada.namespace, "default"}
    return any(namespace in places for namespace, _ in stage.history.now.get("commands", {}))


async def test_a_queue_command_of_a_tenants_namespace_is_refused(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.queue("theirs")
        await stage.karmada.cluster("m1", cpu="4")
        await stage.controller.start()
        await command(stage, "CloseQueue", "Queue", "theirs", namespace=stage.karmada.namespace)
        await stage.controller.wait_for_log("command refused")
        await stage.history.until(lambda _: not is_left(stage), "no command left")
        await stage.expect_no_writes(seconds=0.5)
        assert state(stage, "theirs") in {"", "Open"}


async def test_a_queue_is_closed_takes_nobody_and_is_opened_again(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="4")
        await stage.controller.start()
        await stage.karmada.job("runs", "q")
        await stage.admitted("runs")
        await command(stage, "CloseQueue", "Queue", "q")
        await becomes(stage, "q", "Closing")
        await stage.karmada.job("late", "q")
        await wait_for_event(stage, "QueueClosed", "Job", "late")
        for name in ("runs", "late"):
            await stage.karmada.delete(stage.karmada.path(name))
        await becomes(stage, "q", "Closed")
        await wait_for_event(stage, "CloseQueue", "Queue", "q", namespace="default")
        await command(stage, "OpenQueue", "Queue", "q")
        await becomes(stage, "q", "Open")
        await stage.karmada.job("next", "q")
        await stage.admitted("next")
        await stage.history.until(lambda _: not is_left(stage), "no command left")


async def test_those_below_a_queue_close_and_open_with_it(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.queue("top")
        await stage.karmada.queue("left", parent="top")
        await stage.karmada.queue("right", parent="top")
        await stage.karmada.cluster("m1", cpu="4")
        await stage.controller.start()
        await command(stage, "CloseQueue", "Queue", "right")
        await becomes(stage, "right", "Closed")
        await command(stage, "CloseQueue", "Queue", "top")
        await becomes(stage, "left", "Closed")
        await command(stage, "OpenQueue", "Queue", "left")
        event = await wait_for_event(stage, "OpenQueueFailed", "Queue", "left", namespace="default")
        assert "open that first" in event["note"]
        await command(stage, "OpenQueue", "Queue", "top")
        await becomes(stage, "left", "Open")
        assert state(stage, "right") == "Closed", "it was closed by itself"
        assert stage.history.now["queues"]["", "left"]["metadata"]["annotations"] == {
            "volcano.sh/closed-by-parent": "false"
        }


async def aborted(stage: Harness, name: str, queue: str = "q") -> None:
    """Let a job run, and be aborted where it runs."""
    await stage.karmada.job(name, queue)
    await stage.admitted(name)
    await stage.karmada.phase(name, "Aborted")
    await stage.history.until(lambda _: record(stage, name).get("aborted") is True, f"{name} taken back")
    # Karmada's part: its works are gone, and so is what they told.
    await stage.karmada.merge(f"{stage.karmada.path(name)}/status", {"status": {"aggregatedStatus": []}})


def record(stage: Harness, name: str) -> dict[str, Any]:
    stored = stage.history.now["resourcebindings"][stage.karmada.namespace, f"{name}-job"]
    found: dict[str, Any] = json.loads(stored["metadata"].get("annotations", {}).get(ADMISSION_ANNOTATION, "{}"))
    return found


async def test_d8_what_was_aborted_waits_until_it_is_resumed(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="4")
        await stage.controller.start()
        await aborted(stage, "stopped")
        await stage.karmada.job("other", "q")
        await stage.admitted("other")
        await wait_for_event(stage, "Aborted", "Job", "stopped", action="Wait")
        await stage.expect_no_writes(seconds=0.5)
        assert stage.bindings()["stopped"].suspended
        await command(stage, "ResumeJob", "Job", "stopped")
        await stage.admitted("stopped")
        assert record(stage, "stopped")["evictions"] == 1
        await stage.history.until(lambda _: not is_left(stage), "no command left")


async def test_d8_what_was_aborted_is_tried_again_when_its_template_changes_also_while_we_are_down(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.queue("q")
        await stage.karmada.cluster("m1", cpu="4")
        await stage.controller.start()
        await aborted(stage, "stopped")
        await stage.controller.stop()
        path = f"{stage.karmada.folder('jobs')}/stopped"
        await stage.karmada.merge(path, {"metadata": {"labels": {"seen": "yes"}}})
        await stage.controller.start()
        await stage.controller.wait_for_log('"reason":"Aborted"')
        await stage.expect_no_writes(seconds=0.5)
        assert stage.bindings()["stopped"].suspended, "a label is no change of what runs"
        await stage.karmada.merge(path, {"spec": {"minAvailable": 1, "maxRetry": 5}})
        await stage.admitted("stopped")


async def test_commands_of_others_are_left_alone_and_ours_are_carried_out_once(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.queue("q")
        await stage.karmada.queue("old")
        await stage.karmada.cluster("m1", cpu="4")
        stage.proxy.add(
            ErrorReply(lambda call: call.method == "PATCH" and "/queues/q/status" in call.path, 3, status=500)
        )
        await stage.controller.start()
        await stage.karmada.job("runs", "q")
        await stage.admitted("runs")
        for action, kind, name in (("AbortJob", "Job", "runs"), ("CloseQueue", "PodGroup", "q")):
            await command(stage, action, kind, name)
        await command(stage, "CloseQueue", "Queue", "old", uid="of-another-one-of-that-name")
        await command(stage, "CloseQueue", "Queue", "q")
        await command(stage, "CloseQueue", "Queue", "no-such-queue")
        await becomes(stage, "q", "Closing")
        await asyncio.sleep(0.5)
        left = {name for namespace, name in stage.history.now["commands"] if namespace == stage.karmada.namespace}
        assert sorted(name.split("-")[1] for name in left) == ["abortjob", "closequeue"]
        assert state(stage, "old") != "Closed"
        await stage.karmada.api.delete(COMMANDS.item_path(stage.karmada.namespace, "").rstrip("/"))
        assert QUEUES.plural in stage.history.now
