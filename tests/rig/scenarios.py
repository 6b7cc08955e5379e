"""Six short scenarios whose end must not depend on faults.

Each has a setup before the controller starts, and steps afterwards. Faults may interrupt the steps anywhere, so steps
only wait for what they need.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from tests.rig.binding_state import BindingState
from tests.rig.harness import Harness

Step = Callable[[Harness], Awaitable[None]]
End = Callable[[Mapping[str, BindingState]], bool]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario and its expected end."""

    name: str
    before: Step
    then: Step
    end: End
    writes: int
    """Number of writes without faults."""

    async def play(self, harness: Harness) -> None:
        """Run the steps to the end and check what holds for every run."""
        await self.then(harness)
        await self.finish(harness)

    async def finish(self, harness: Harness) -> None:
        """Wait for the end (I4), then check pending reasons (I8) and that nothing more is written (I7)."""
        await harness.until(self.end, f"the end of {self.name}")
        await harness.expect_pending_reasons()
        await harness.expect_no_writes(seconds=0.3)


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


async def _shared(harness: Harness) -> None:
    await harness.karmada.queue("light", weight=1)
    await harness.karmada.queue("heavy", weight=3)
    for number in range(4):
        for queue in ("light", "heavy"):
            await harness.karmada.job(f"{queue}-{number}", queue, endless=True)


async def _shared_capacity(harness: Harness) -> None:
    await harness.karmada.cluster("m1", cpu="4")


def _shared_end(seen: Mapping[str, BindingState]) -> bool:
    runs = [name.rpartition("-")[0] for name, each in seen.items() if each.admitted]
    return (runs.count("light"), runs.count("heavy")) == (1, 3)


async def _gangs(harness: Harness) -> None:
    await harness.karmada.queue("gangs", capability={"cpu": "6"})
    await harness.karmada.cluster("m1", cpu="7")
    await harness.karmada.cluster("m2", cpu="7")
    for number in range(4):
        await harness.karmada.job(f"gang-{number}", "gangs", replicas=3)
    await harness.karmada.job("too-big", "gangs", replicas=7)


async def _repaired(harness: Harness) -> None:
    """Another client presets clusters on one binding, and later suspends a running one."""
    await harness.karmada.queue("mended")
    await harness.karmada.cluster("m1", cpu="3")
    uid = await harness.karmada.template("preset", "mended", cpu=5)
    await harness.karmada.bind("preset", uid, clusters=[{"name": "m1"}])
    await harness.karmada.job("runs", "mended", endless=True)


async def _pause(harness: Harness) -> None:
    await harness.admitted("runs")
    await harness.karmada.merge(harness.karmada.path("runs"), {"spec": {"suspension": {"scheduling": True}}})


def _repaired_end(seen: Mapping[str, BindingState]) -> bool:
    preset, runs = seen["preset"], seen["runs"]
    return runs.admitted and preset.suspended and not preset.clusters


async def _recreated(harness: Harness) -> None:
    await harness.karmada.queue("again")
    await harness.karmada.cluster("m1", cpu="2")
    await harness.karmada.job("stays", "again", endless=True)
    await harness.karmada.job("comes-back", "again", endless=True)


async def _recreate_binding(harness: Harness) -> None:
    """Delete and recreate a binding with the same name."""
    await harness.admitted("stays")
    uid = harness.history.now["jobs"][harness.karmada.namespace, "comes-back"]["metadata"]["uid"]
    await harness.karmada.delete(harness.karmada.path("comes-back"))
    await harness.karmada.bind("comes-back", uid)


def _recreated_end(seen: Mapping[str, BindingState]) -> bool:
    return seen["stays"].admitted and "comes-back" in seen and seen["comes-back"].admitted


async def _fill_cluster(harness: Harness) -> None:
    await harness.karmada.queue("open")
    await harness.karmada.queue("closes")
    await harness.karmada.cluster("m1", cpu="4")
    for number in range(2):
        await harness.karmada.job(f"first-{number}", "open", cpu=2, endless=True)


async def _change_capacity(harness: Harness) -> None:
    """Reduce the capacity below the usage, close a queue, and restore the capacity."""
    await harness.admitted("first-0", "first-1")
    await harness.karmada.set_summary("m1", cpu="2")
    await harness.karmada.merge(
        "/apis/scheduling.volcano.sh/v1beta1/queues/closes/status", {"status": {"state": "Closed"}}
    )
    await harness.karmada.job("late", "open", cpu=2)
    await harness.karmada.set_summary("m1", cpu="6")
    await harness.done("late")
    # The controller learns of a closed queue with a delay.
    await asyncio.sleep(0.5)
    await harness.karmada.job("shut-out", "closes", cpu=1)


SCENARIOS = (
    Scenario("chain", _chained_jobs, no_change, expect_finished(*(f"link-{number}" for number in range(4))), 4),
    Scenario("shared", _shared, _shared_capacity, _shared_end, 4),
    Scenario("gangs", _gangs, no_change, expect_finished(*(f"gang-{number}" for number in range(4)), waiting=1), 4),
    Scenario("mended", _repaired, _pause, _repaired_end, 3),
    Scenario("again", _recreated, _recreate_binding, _recreated_end, 3),
    Scenario("ebb", _fill_cluster, _change_capacity, expect_finished("late", waiting=1), 3),
)
