"""When the queue status controller writes: a queue that the API server rejects delays no other one."""

import asyncio
from typing import Any

from controller.controllers.queue_status.controller import QueueStatusController, QueueStatusDependencies
from controller.engine.engine import Engine
from controller.kube.errors import ApiError, Invalid, ServerError
from tests.cache import objects
from tests.deterministic.clock import simulate


class FailingApi:
    """An API server that answers patches of some queues with an error."""

    def __init__(self, error: ApiError) -> None:
        self.error = error
        self.attempts: list[tuple[float, str]] = []

    async def patch(self, path: str, *_: Any, **__: Any) -> None:
        queue = path.split("/")[-2]
        self.attempts.append((asyncio.get_running_loop().time(), queue))
        if "invalid" in queue:
            raise self.error


def attempts_after(error: ApiError) -> list[tuple[float, str]]:
    """Return when the statuses of nine queues with an *error* and of one without are tried within 25 seconds."""

    async def main() -> list[tuple[float, str]]:
        api, store, engine = FailingApi(error), objects.complete_store(), Engine()
        for name in (*(f"invalid-{number}" for number in range(9)), "train"):
            store.queues.upsert(store.queues.decode(objects.queue(name)))
        for queue in store.queues:
            engine.queue_changed(queue.queue)
        engine.plan(0)
        needed = QueueStatusDependencies(
            engine=lambda: engine, may_write=lambda: True, is_enabled=lambda: True, is_busy=lambda: False
        )
        controller = QueueStatusController(api, store, needed)  # type: ignore[arg-type]
        running = asyncio.get_running_loop().create_task(controller.run())
        controller.wake()
        await asyncio.sleep(25)
        running.cancel()
        return api.attempts

    return simulate(main, 1)


def test_rejected_status_delays_no_other_queue():
    attempts = attempts_after(Invalid("PATCH", 422, "spec.weight: Invalid value"))
    written_at = next(at for at, queue in attempts if queue == "train")
    assert written_at < 1
    again = [at for at, queue in attempts if queue == "invalid-0"]
    assert len(again) == 3, "a rejected status is tried again"


def test_failing_server_delays_all_queues():
    attempts = attempts_after(ServerError("PATCH", 500, "etcdserver: request timed out"))
    assert len(attempts) < 10
