"""What a controller does while nothing happens, counted on virtual time."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from unittest import mock

import pytest

from tests.deterministic import kinds
from tests.deterministic.clock import PROCESS, simulate
from tests.deterministic.network import Call
from tests.deterministic.operations import create_cluster, hyperjob, job
from tests.deterministic.system import System

SETTLE_SECONDS = 90
MINUTES = 3


@contextmanager
def counted_callbacks(callbacks: Counter[str]) -> Iterator[None]:
    """Count the callbacks of the event loop in *callbacks*, by process."""
    run_handle = asyncio.Handle._run

    def run(handle: asyncio.Handle) -> None:
        process = handle._context.get(PROCESS)
        callbacks[process.name if process else ""] += 1
        run_handle(handle)

    with mock.patch.object(asyncio.Handle, "_run", run):
        yield


@pytest.fixture(scope="module")
def idle(tmp_path_factory) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Return the callbacks per process, and the requests by method and collection, in *MINUTES* without changes."""
    callbacks, requests = Counter[str](), Counter[tuple[str, str]]()

    def observe(call: Call, _: object) -> None:
        requests[call.request.method, call.request.path.rpartition("/")[2]] += 1

    async def main() -> None:
        system = System(1, tmp_path_factory.mktemp("idle"))
        await system.install()
        for controller in system.controllers:
            controller.process.start()
        await asyncio.sleep(SETTLE_SECONDS)
        system.network.observers.append(observe)
        with counted_callbacks(callbacks):
            await asyncio.sleep(60 * MINUTES)
        await system.stop()

    simulate(main, 1)
    return callbacks, requests


def test_idle_controllers_only_renew_leases_and_watches(idle):
    callbacks, _ = idle
    # Each file and each of 15 watches has timers, and a request takes several callbacks; a poll each second adds 120.
    assert {name: count / MINUTES < 550 for name, count in callbacks.items() if name} == {
        "controller-a": True,
        "controller-b": True,
    }, callbacks


def test_idle_controllers_write_nothing_but_the_lease(idle):
    _, requests = idle
    assert {name for method, name in requests if method != "GET"} == {"volcano-global-controller"}


def test_idle_watches_are_checked_a_few_times_a_minute(idle):
    _, requests = idle
    lists = {name: count for (_, name), count in requests.items() if name != "volcano-global-controller"}
    # Per process two watches begin in a minute, each with two lists; Jobs are watched with and without a selector.
    assert max(lists.values()) <= 2 * 2 * (2 * 3) * MINUTES, lists


def test_former_leader_with_a_due_hyperjob_does_not_spin(tmp_path):
    """The name of its part is taken, so the leader looks at the HyperJob every five seconds."""
    callbacks = Counter[str]()

    async def main() -> str:
        system = System(1, tmp_path)
        await system.install()
        await create_cluster(system, "member1")
        for process in (system.webhook.process, *(controller.process for controller in system.controllers)):
            process.start()
        await asyncio.sleep(5)
        taken = job("h-trainer-0", "default", pods=1, cpu="1", seconds=60)
        assert (await system.create(kinds.JOBS, taken)).status == HTTPStatus.CREATED
        await system.create(kinds.HYPERJOBS, hyperjob("h", {"name": "trainer", "templateSpec": taken["spec"]}))
        await asyncio.sleep(SETTLE_SECONDS)
        former = next(controller.process for controller in system.controllers if controller.leads)
        former.freeze()
        await asyncio.sleep(60)
        former.resume()
        await asyncio.sleep(30)
        assert not next(item for item in system.controllers if item.process is former).leads
        with counted_callbacks(callbacks):
            await asyncio.sleep(60)
        await system.stop()
        return former.name

    # Two looks each second take some callbacks each; fifty would take thousands.
    assert callbacks[simulate(main, 1)] < 1_200, callbacks
