"""Leader election on a real API server with a simulated clock."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from controller.api.keys import LEASES
from controller.kube.client import Api
from controller.kube.errors import NotFound
from controller.kube.leader_election import Candidate, LeaderElection, LeaseTimings
from tests.waiting import poll

TERMS = LeaseTimings(lease=30, renew=12, retry=0.05, connect=5, write=10)


class Arena:
    """Candidates for one lease that share a clock."""

    def __init__(self, api: Api, namespace: str, group: asyncio.TaskGroup) -> None:
        self.api, self.namespace, self.group = api, namespace, group
        self.now = 1000.0
        self.tasks: list[asyncio.Task] = []

    def enter(self, run: str) -> LeaderElection:
        candidate = Candidate("a", run)
        election = LeaderElection(self.api, self.namespace, candidate=candidate, timings=TERMS, clock=lambda: self.now)
        self.tasks.append(self.group.create_task(election.run()))
        return election

    async def rounds(self) -> None:
        """Run a few ticks of every candidate."""
        await asyncio.sleep(4 * TERMS.retry)


@pytest.fixture
async def arena(control_plane, namespace) -> AsyncIterator[Arena]:
    async with Api.connect(control_plane.kubeconfig("admin")) as api, asyncio.TaskGroup() as group:
        arena = Arena(api, namespace, group)
        yield arena
        for task in arena.tasks:
            task.cancel()


async def test_leader_whose_lease_was_taken_stops(arena):
    first = arena.enter("1")
    await poll(lambda: first.leads, "the leader")
    robber = arena.enter("2")
    await poll(lambda: robber.leads and not first.leads, "another leader")
    assert not robber.may_write, "the former process of this name may still be writing"
    await arena.rounds()
    assert (robber.leads, first.leads) == (True, False)


async def test_deleted_lease_is_recreated(arena):
    first = arena.enter("1")
    await poll(lambda: first.leads, "the leader")
    path = LEASES.item_path(arena.namespace, "volcano-global-controller")
    await arena.api.delete(path)

    async def holder() -> str:
        return json.loads(await arena.api.get(path))["spec"]["holderIdentity"]

    await poll(holder, "the lease", until=lambda seen: seen == "a_1", ignoring=(NotFound,))
    assert first.leads


async def test_lapse_is_notified_before_late_renewal(arena):
    """A caller that read the state in between must be notified of the lapse."""
    told = []
    first = arena.enter("1")
    first.on_change.append(lambda: told.append((first.leads, first.may_write)))
    await poll(lambda: first.may_write, "the leader")
    await arena.rounds()
    assert told == [(True, True)]
    arena.now += TERMS.renew + 1
    assert not first.may_write
    await poll(lambda: first.may_write, "the leader again")
    assert told == [(True, True), (False, False), (True, True)]
