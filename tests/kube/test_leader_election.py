"""Leader election on a real API server with simulated clocks."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from controller.api.keys import LEASES
from controller.kube.client import Api
from controller.kube.leader_election import Candidate, LeaderElection, LeaseTimings
from tests.waiting import LIMIT_SECONDS

TERMS = LeaseTimings(lease=30, renew=12, retry=0.05, connect=5, write=10)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def api(control_plane) -> AsyncIterator[Api]:
    async with Api.connect(control_plane.kubeconfig("admin")) as api:
        yield api


class Arena:
    """Candidates for one lease that share a clock."""

    def __init__(self, api: Api, namespace: str, group: asyncio.TaskGroup) -> None:
        self.api, self.namespace, self.group = api, namespace, group
        self.clock = Clock()
        self.tasks: dict[str, asyncio.Task] = {}

    def enter(self, name: str, run: str = "1") -> LeaderElection:
        candidate = Candidate(name, run)
        election = LeaderElection(self.api, self.namespace, candidate=candidate, timings=TERMS, clock=self.clock)
        self.tasks[candidate.holder] = self.group.create_task(election.run())
        return election

    async def dies(self, name: str, run: str = "1") -> None:
        task = self.tasks[f"{name}_{run}"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def lease(self) -> dict:
        return json.loads(await self.api.get(LEASES.item_path(self.namespace, "volcano-global-controller")))

    async def until(self, question) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not question():  # noqa: ASYNC110 -- several elections, each with a voice of its own
                await asyncio.sleep(0.01)

    async def rounds(self) -> None:
        """Run a few ticks of every candidate."""
        await asyncio.sleep(4 * TERMS.retry)


@pytest.fixture
async def arena(api, namespace) -> AsyncIterator[Arena]:
    async with asyncio.TaskGroup() as group:
        arena = Arena(api, namespace, group)
        yield arena
        for task in arena.tasks.values():
            task.cancel()


async def test_first_candidate_leads_and_second_stands_by(arena):
    first = arena.enter("a")
    await arena.until(lambda: first.may_write)
    second = arena.enter("b")
    await arena.rounds()
    assert (first.may_write, second.leads) == (True, False)
    spec = (await arena.lease())["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a_1", 30, 0)


async def test_expired_lease_is_acquired_with_write_delay(arena):
    first = arena.enter("a")
    await arena.until(lambda: first.leads)
    second = arena.enter("b")
    await arena.rounds()
    await arena.dies("a")
    # What was renewed last must have been seen: the time runs from there.
    await arena.rounds()
    arena.clock.now += 29
    await arena.rounds()
    assert not second.leads
    for _ in range(20):
        arena.clock.now += 2
        await arena.rounds()
        if second.leads:
            break
    assert second.leads
    assert not second.may_write
    for _ in range(5):
        arena.clock.now += 2
        await arena.rounds()
    assert second.may_write
    assert (await arena.lease())["spec"]["leaseTransitions"] == 1


async def test_restarted_process_reacquires_lease_with_write_delay(arena):
    first = arena.enter("a")
    await arena.until(lambda: first.leads)
    await arena.dies("a")
    again = arena.enter("a", "2")
    await arena.until(lambda: again.leads)
    assert not again.may_write


async def test_released_lease_is_used_at_once(arena):
    first = arena.enter("a")
    await arena.until(lambda: first.leads)
    second = arena.enter("b")
    await arena.rounds()
    await arena.dies("a")
    await first.release()
    assert not first.leads
    await arena.until(lambda: second.may_write)


async def test_leader_without_renewal_stops_by_clock(arena):
    first = arena.enter("a")
    await arena.until(lambda: first.may_write)
    await arena.dies("a")
    arena.clock.now += 11
    assert first.may_write
    arena.clock.now += 2
    assert not first.leads
    assert not first.may_write


async def test_leader_whose_lease_was_taken_stops(arena):
    first = arena.enter("a")
    await arena.until(lambda: first.leads)
    robber = arena.enter("a", "2")
    await arena.until(lambda: robber.leads and not first.leads)
    await arena.rounds()
    assert (robber.leads, first.leads) == (True, False)


async def test_deleted_lease_is_recreated(arena, api):
    first = arena.enter("a")
    await arena.until(lambda: first.leads)
    await api.delete(LEASES.item_path(arena.namespace, "volcano-global-controller"))
    await arena.rounds()
    assert first.leads
    assert (await arena.lease())["spec"]["holderIdentity"] == "a_1"


async def test_leadership_change_is_notified_once(arena):
    told = []
    first = arena.enter("a")
    first.on_change.append(lambda: told.append((first.leads, first.may_write)))
    await arena.until(lambda: first.may_write)
    await arena.rounds()
    assert told == [(True, True)]


async def test_lapse_is_notified_before_late_renewal(arena):
    """A caller that read the state in between must be notified of the lapse."""
    told = []
    first = arena.enter("a")
    first.on_change.append(lambda: told.append((first.leads, first.may_write)))
    await arena.until(lambda: first.may_write)
    arena.clock.now += TERMS.renew + 1
    assert not first.may_write
    await arena.until(lambda: first.may_write)
    assert told == [(True, True), (False, False), (True, True)]
