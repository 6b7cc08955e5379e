"""Events are written after decisions, but within a time limit."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.kube.client import Api
from controller.kube.event_recorder import EventRecorder, RecorderOptions
from controller.kube.events import EventMessage, Reference
from controller.reporting.metrics import ControllerMetrics
from tests.scripted_server import ScriptedServer, answering, scripted_server
from tests.waiting import LIMIT_SECONDS

FOLDER = "/apis/events.k8s.io/v1/namespaces/ns/events"


@asynccontextmanager
async def telling(tmp_path, *, patience: float, is_busy) -> AsyncIterator[tuple[EventRecorder, ScriptedServer]]:
    async with scripted_server() as server:
        server.says("POST", FOLDER, answering(201, {}))
        async with Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api, asyncio.TaskGroup() as group:
            manner = RecorderOptions(per_second=1000, max_delay_seconds=patience)
            recorder = EventRecorder(api, metrics=ControllerMetrics(), is_busy=is_busy, options=manner)
            running = group.create_task(recorder.run())
            yield recorder, server
            running.cancel()


def news(topic: str, note: str) -> EventMessage:
    return EventMessage("u", topic, "Do", "Because", (Reference("v1", "Job", "ns", "j", "u"),), lambda: note)


async def told(server: ScriptedServer, count: int) -> list[str]:
    async with asyncio.timeout(LIMIT_SECONDS):
        while len(server.bodies) < count:  # noqa: ASYNC110 -- the scripted server gives no event
            await asyncio.sleep(0.01)
    return [json.loads(body)["note"] for body in server.bodies]


async def test_events_wait_for_decisions_and_skip_outdated_ones(tmp_path):
    busy = [True]
    async with telling(tmp_path, patience=3600, is_busy=lambda: busy[0]) as (recorder, server):
        recorder.record(news("waits", "no room"))
        await asyncio.sleep(0.3)
        assert server.bodies == []
        recorder.record(news("admitted", "to m1"))
        busy[0] = False
        assert await told(server, 1) == ["to m1"]


async def test_events_are_written_despite_constant_decisions(tmp_path):
    async with telling(tmp_path, patience=0.2, is_busy=lambda: True) as (recorder, server):
        recorder.record(news("waits", "no room"))
        assert await told(server, 1) == ["no room"]
