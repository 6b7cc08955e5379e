"""F6: the controller is killed at its writes; started work is finished exactly once, and all usage is counted.

Each of the short scenarios has a setup before the controller starts, and steps afterwards, which may be interrupted
anywhere, so that they only wait for what they need.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import pytest

from tests.rig.binding_state import BindingState
from tests.rig.faults import Delay, Kill
from tests.rig.harness import Harness, open_harness
from tests.waiting import LIMIT_SECONDS, poll

Step = Callable[[Harness], Awaitable[None]]
End = Callable[[Mapping[str, BindingState]], bool]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario and its expected end."""

    before: Step
    then: Step
    end: End
    writes: int
    """Number of writes without faults."""


def expect_finished(*names: str, waiting: int = 0) -> End:
    """Return a condition: these jobs have finished and *waiting* others are pending."""

    def end(seen: Mapping[str, BindingState]) -> bool:
        idle = sum(1 for item in seen.values() if item.suspended and not item.clusters)
        return all(name in seen and seen[name].is_finished for name in names) and idle == waiting

    return end


async def no_change(_: Harness) -> None:
    """Do nothing."""


async def _chained_jobs(harness: Harness) -> None:
    await harness.karmada.queue("chain")
    await harness.karmada.cluster("m1", cpu="2")
    for number in range(4):
        await harness.karmada.job(f"link-{number}", "chain", cpu=2)


async def _gangs(harness: Harness) -> None:
    await harness.karmada.queue("gangs", capability={"cpu": "6"})
    await harness.karmada.cluster("m1", cpu="7")
    await harness.karmada.cluster("m2", cpu="7")
    for number in range(4):
        await harness.karmada.job(f"gang-{number}", "gangs", replicas=3)
    await harness.karmada.job("too-big", "gangs", replicas=7)


async def _preset_clusters(harness: Harness) -> None:
    """Another client presets clusters on one binding, and later suspends a running one."""
    await harness.karmada.queue("repairs")
    await harness.karmada.cluster("m1", cpu="3")
    uid = await harness.karmada.template("preset", "repairs", cpu=5)
    await harness.karmada.bind("preset", uid, clusters=[{"name": "m1"}])
    await harness.karmada.job("runs", "repairs", endless=True)


async def _suspend(harness: Harness) -> None:
    await harness.admitted("runs")
    await harness.karmada.merge(harness.karmada.path("runs"), {"spec": {"suspension": {"scheduling": True}}})


def _is_repaired(seen: Mapping[str, BindingState]) -> bool:
    preset, runs = seen["preset"], seen["runs"]
    return runs.admitted and preset.suspended and not preset.clusters


async def _fill_cluster(harness: Harness) -> None:
    await harness.karmada.queue("open")
    await harness.karmada.queue("closes")
    await harness.karmada.cluster("m1", cpu="4")
    for number in range(2):
        await harness.karmada.job(f"first-{number}", "open", cpu=2, endless=True)


async def _change_capacity(harness: Harness) -> None:
    """Reduce the capacity below the usage, and restore it when the controller knows that a queue is closed."""
    await harness.admitted("first-0", "first-1")
    await harness.karmada.set_summary("m1", cpu="2")
    await harness.karmada.merge(
        "/apis/scheduling.volcano.sh/v1beta1/queues/closes/status", {"status": {"state": "Closed"}}
    )
    await harness.karmada.job("late", "open", cpu=2)
    await harness.karmada.job("shut-out", "closes", cpu=1)
    closed = 'volcano_global_pending_workloads_by_reason{reason="QueueClosed"}'
    await poll(lambda: harness.controller.metric(closed), "the queue is known as closed", until=lambda seen: seen == 1)
    await harness.karmada.set_summary("m1", cpu="6")
    await harness.done("late")


SCENARIOS = {
    "chain": Scenario(_chained_jobs, no_change, expect_finished(*(f"link-{number}" for number in range(4))), 4),
    "gangs": Scenario(_gangs, no_change, expect_finished(*(f"gang-{number}" for number in range(4)), waiting=1), 4),
    "repairs": Scenario(_preset_clusters, _suspend, _is_repaired, 3),
    "capacity-changes": Scenario(_fill_cluster, _change_capacity, expect_finished("late", waiting=1), 3),
}


async def finish(harness: Harness, scenario: Scenario) -> None:
    """Wait for the end (I4), then check pending reasons (I8) and that nothing more is written (I7)."""
    await harness.until(scenario.end, "the end of the scenario")
    await harness.expect_pending_reasons()
    await harness.expect_no_writes(seconds=0.3)


@pytest.mark.parametrize(
    "name",
    [*("gangs", "repairs"), *(pytest.param(name, marks=pytest.mark.long) for name in ("chain", "capacity-changes"))],
)
async def test_scenario_without_faults_has_its_number_of_writes(plane, tmp_path, name):
    scenario = SCENARIOS[name]
    async with open_harness(plane, tmp_path) as harness:
        await scenario.before(harness)
        await harness.controller.start()
        await scenario.then(harness)
        await finish(harness, scenario)
        # A job that is deleted before its admission needs one write less.
        assert scenario.writes - 1 <= len(harness.requests()) <= scenario.writes


@pytest.mark.parametrize(
    ("name", "write", "when"), [("chain", 3, "before"), ("gangs", 2, "after-unacknowledged"), ("repairs", 2, "after")]
)
async def test_kill_at_sampled_writes_reaches_the_same_end(plane, tmp_path, name, write, when):
    """The simulation kills it at any step; each of these is one side of a write."""
    scenario = SCENARIOS[name]
    async with open_harness(plane, tmp_path) as harness:
        await scenario.before(harness)
        kill = Kill(write, when, harness.controller.kill)
        harness.proxy.add(kill)
        await harness.controller.begin()
        playing = asyncio.create_task(scenario.then(harness))
        async with asyncio.timeout(LIMIT_SECONDS):
            await kill.struck.wait()
        await harness.controller.start()
        await playing
        await finish(harness, scenario)


@pytest.mark.smoke
async def test_first_cycle_after_restart_counts_all_admitted(plane, tmp_path):
    """50 jobs run; pages of bindings arrive slowly, all other lists immediately."""
    names = [f"runs-{number}" for number in range(50)]
    async with open_harness(plane, tmp_path, "--page-size", "10", plays=False) as harness:
        await harness.start(*names, cpu="90", capability={"cpu": "50"})
        await harness.admitted(*names)
        harness.controller.kill()
        for number in range(10):
            await harness.karmada.job(f"waits-{number}", "q", priority="")
        harness.proxy.add(
            Delay(lambda call: call.resource == "resourcebindings" and "continue" in call.query, seconds=0.2)
        )
        await harness.controller.start()
        await harness.expect_pending_reasons()
        await harness.expect_no_writes(seconds=0.5)
        assert sum(binding.admitted for binding in harness.bindings().values()) == 50
