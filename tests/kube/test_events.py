"""Events: which messages are queued, what is written for them, and when."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.kube.client import Api
from controller.kube.event_recorder import EventQueue, EventRecorder, RecorderOptions
from controller.kube.events import EventMessage, Reference, build_events, observed_count, series_patch
from controller.reporting.metrics import ControllerMetrics
from tests.retained import retained
from tests.scripted_server import ScriptedServer, answering, refusing, scripted_server
from tests.waiting import poll

JOB = Reference("batch.volcano.sh/v1alpha1", "Job", "team-a", "train", "u1")
BINDING = Reference("work.karmada.io/v1alpha2", "ResourceBinding", "team-a", "train-job", "u2")
EVENTS, EVENTS_OF_GONE = (f"/apis/events.k8s.io/v1/namespaces/{name}/events" for name in ("team-a", "gone"))


def message(
    uid: str, topic: str = "waits", reason: str = "InsufficientCapacity", *, note: str = "", regarding=(JOB,)
) -> EventMessage:
    return EventMessage(uid, topic, "Wait", reason, regarding, lambda: note or f"{uid} {topic} {reason}")


def popped(queue: EventQueue) -> list[str]:
    notes = []
    while (event_message := queue.pop()) is not None:
        notes.append(event_message.note().removesuffix(" InsufficientCapacity"))
    return notes


@pytest.mark.parametrize(
    ("messages", "notes"),
    [
        pytest.param([message("a"), message("a", reason="New")], ["a waits New"], id="latest-replaces-earlier"),
        pytest.param(
            [message("a"), message("b"), message("a", "admitted")],
            ["b waits", "a admitted"],
            id="admission-replaces-pending",
        ),
        pytest.param(
            [message("a"), message("b", "admitted"), message("c", "evicted"), message("d", "warned", "One")],
            ["c evicted", "d warned One", "a waits", "b admitted"],
            id="evictions-and-warnings-first",
        ),
        pytest.param(
            [message("a", "warned", "One"), message("a", "warned", "Two")],
            ["a warned One", "a warned Two"],
            id="different-warnings-are-kept",
        ),
    ],
)
def test_messages_are_replaced_and_ordered_by_topic(messages, notes):
    queue = EventQueue(10)
    assert [queue.put(event_message) for event_message in messages] == [None] * len(messages)
    assert len(queue) == len(notes)
    assert popped(queue) == notes


@pytest.mark.parametrize(
    ("queued", "late", "dropped"),
    [
        pytest.param([message("a"), message("b")], message("c"), "c", id="pending-message"),
        pytest.param([message("a"), message("b")], message("c", "admitted"), "a", id="admission-drops-pending"),
        pytest.param([message("a", "evicted"), message("b", "evicted")], message("c", "evicted"), "c", id="evictions"),
    ],
)
def test_full_queue_drops_the_least_important_message(queued, late, dropped):
    queue = EventQueue(2)
    assert [queue.put(event_message) for event_message in (*queued, late)][-1].uid == dropped
    assert len(popped(queue)) == 2


def in_namespace(namespace: str, uid: str, topic: str = "waits") -> EventMessage:
    about = Reference("batch.volcano.sh/v1alpha1", "Job", namespace, uid, uid)
    return message(uid, topic, regarding=(about,))


def test_namespaces_take_turns():
    queue = EventQueue(10)
    for event_message in (
        *(in_namespace("a", f"a{number}") for number in range(3)),
        in_namespace("b", "b0"),
        in_namespace("a", "a3", "warned"),
        in_namespace("b", "b1", "evicted"),
    ):
        queue.put(event_message)
    assert popped(queue) == ["a3 warned", "b1 evicted", "a0 waits", "b0 waits", "a1 waits", "a2 waits"]


@pytest.mark.parametrize("topic", ["waits", "evicted"])
def test_full_queue_drops_messages_of_the_largest_namespace(topic):
    queue = EventQueue(4)
    flood = [in_namespace("hostile", f"h{number}", topic) for number in range(5)]
    assert [queue.put(event_message) for event_message in flood] == [None] * 4 + [flood[4]]
    assert queue.would_drop("hostile") or topic == "evicted"
    others = [in_namespace("other", f"o{number}", topic) for number in range(3)]
    assert [queue.put(event_message) for event_message in others] == [flood[0], flood[1], others[2]]
    assert popped(queue) == [f"{uid} {topic}" for uid in ("h2", "o0", "h3", "o1")]


def test_full_queue_forgets_namespaces_of_dropped_messages():
    queue = EventQueue(2)
    for number in range(100):
        queue.put(in_namespace(f"ns-{number}", "a"))
    assert retained([queue])["EventQueue._turns"] == 2
    assert [queue.pop().namespace for _ in range(2)] == ["ns-98", "ns-99"]
    assert queue.pop() is None


def written(note: str = "waits", *, instance: str = "me", regarding=(JOB, BINDING)) -> list[dict[str, Any]]:
    events = build_events(message("u2", note=note, regarding=regarding), instance, 1_700_000_000_123)
    return [dict(event.manifest) for event in events]


def test_events_regard_job_and_binding():
    first, second = written()
    job = {"kind": "Job", "apiVersion": JOB.api_version, "namespace": "team-a", "name": "train", "uid": "u1"}
    assert first["regarding"] == second["related"] == job
    assert second["regarding"]["kind"] == "ResourceBinding"
    assert first["eventTime"] == "2023-11-14T22:13:20.123000Z"
    fields = (first["type"], first["reason"], first["action"], first["note"])
    assert fields == ("Normal", "InsufficientCapacity", "Wait", "waits")


def test_same_content_has_the_same_event_name():
    names = [event["metadata"]["name"] for note in ("one", "one", "two") for event in written(note)]
    assert names[0:2] == names[2:4]
    assert len(set(names)) == 4


def test_cluster_scoped_object_has_events_in_default_namespace():
    role = Reference("rbac.authorization.k8s.io/v1", "ClusterRole", "", "x", "u")
    (event,) = build_events(message("u", regarding=(role,)), "me", 0)
    assert (event.namespace, event.folder) == ("default", "/apis/events.k8s.io/v1/namespaces/default/events")
    assert "namespace" not in event.manifest["regarding"]


def test_long_notes_and_names_are_truncated():
    pod = Reference("v1", "Pod", "ns", f"{'a' * 235}.{'b' * 17}", "u")
    (event,) = written("ü" * 2000, instance="host" * 100, regarding=(pod,))
    assert len(event["note"].encode()) <= 1024
    assert event["note"].endswith(" ...")
    assert len(event["reportingInstance"]) <= 128
    assert len(event["metadata"]["name"]) <= 253
    assert ".." not in event["metadata"]["name"]


def test_repetition_continues_stored_count():
    assert observed_count(b'{"series": {"count": 4}}') == 4
    assert observed_count(b'{"metadata": {}}') == observed_count(b'{"series": null}') == 1
    assert series_patch(5, 0)["series"] == {"count": 5, "lastObservedTime": "1970-01-01T00:00:00.000000Z"}


async def notes_of(server: ScriptedServer) -> list[str]:
    return [json.loads(body)["note"] for body in await poll(lambda: server.bodies, "a written event")]


@asynccontextmanager
async def recording(tmp_path, *, max_delay: float, is_busy) -> AsyncIterator[tuple[EventRecorder, ScriptedServer]]:
    async with scripted_server() as server:
        server.says("POST", EVENTS, answering(201, {}))
        async with Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api, asyncio.TaskGroup() as group:
            options = RecorderOptions(per_second=1000, max_delay_seconds=max_delay)
            recorder = EventRecorder(api, metrics=ControllerMetrics(), is_busy=is_busy, options=options)
            running = group.create_task(recorder.run())
            yield recorder, server
            running.cancel()


async def test_events_wait_for_decisions_and_skip_outdated_ones(tmp_path):
    busy = [True]
    async with recording(tmp_path, max_delay=3600, is_busy=lambda: busy[0]) as (recorder, server):
        recorder.record(message("u", note="no room"))
        await asyncio.sleep(0.3)
        assert server.bodies == []
        recorder.record(message("u", "admitted", note="to m1"))
        busy[0] = False
        assert await notes_of(server) == ["to m1"]


async def test_events_are_written_despite_constant_decisions(tmp_path):
    async with recording(tmp_path, max_delay=0.2, is_busy=lambda: True) as (recorder, server):
        recorder.record(message("u", note="no room"))
        assert await notes_of(server) == ["no room"]


@pytest.mark.parametrize("status", [403, 404, 400], ids=["terminating", "deleted", "occupied-name"])
async def test_rejected_events_of_a_namespace_delay_no_others(tmp_path, status):
    gone = Reference("batch.volcano.sh/v1alpha1", "Job", "gone", "train", "u1")
    async with recording(tmp_path, max_delay=0, is_busy=lambda: False) as (recorder, server):
        server.says("POST", EVENTS_OF_GONE, refusing(status))
        for number in range(50):
            recorder.record(message(f"g{number}", regarding=(gone,)))
        recorder.record(message("u", note="no room"))
        sent = await poll(lambda: [path for _, path, _ in server.requests], "events", until=lambda sent: EVENTS in sent)
    assert sent == [EVENTS_OF_GONE, EVENTS]
