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


class Election:
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
async def election(control_plane, namespace) -> AsyncIterator[Election]:
    async with Api.connect(control_plane.kubeconfig("admin")) as api, asyncio.TaskGroup() as group:
        election = Election(api, namespace, group)
        yield election
        for task in election.tasks:
            task.cancel()


async def test_leader_whose_lease_was_taken_stops(election):
    first = election.enter("1")
    await poll(lambda: first.leads, "the leader")
    second = election.enter("2")
    await poll(lambda: second.leads and not first.leads, "another leader")
    assert not second.may_write, "the former process of this name may still be writing"
    await election.rounds()
    assert (second.leads, first.leads) == (True, False)


async def test_deleted_lease_is_recreated(election):
    first = election.enter("1")
    await poll(lambda: first.leads, "the leader")
    path = LEASES.item_path(election.namespace, "volcano-global-controller")
    await election.api.delete(path)

    async def holder() -> str:
        return json.loads(await election.api.get(path))["spec"]["holderIdentity"]

    await poll(holder, "the lease", until=lambda seen: seen == "a_1", ignoring=(NotFound,))
    assert first.leads


async def test_lapse_is_notified_before_late_renewal(election):
    """A caller that read the state in between must be notified of the lapse."""
    notified = []
    first = election.enter("1")
    first.on_change.append(lambda: notified.append((first.leads, first.may_write)))
    await poll(lambda: first.may_write, "the leader")
    await election.rounds()
    assert notified == [(True, True)]
    election.now += TERMS.renew + 1
    assert not first.may_write
    await poll(lambda: first.may_write, "the leader again")
    assert notified == [(True, True), (False, False), (True, True)]
