"""Six short stories that the controller must bring to one and the same end, whatever happens on the way.

Each is played in two acts: what is there before the controller starts, and
what happens to it then. A fault may interrupt the second anywhere, so each
step waits for nothing but what the story itself needs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from tests.rig.sight import Sight
from tests.rig.stage import Stage

Act = Callable[[Stage], Awaitable[None]]
End = Callable[[Mapping[str, Sight]], bool]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story and its end."""

    name: str
    before: Act
    then: Act
    end: End
    writes: int
    """How many writes it takes without faults."""

    async def play(self, stage: Stage) -> None:
        """Play the second act to its end, and ask what is asked of every run."""
        await self.then(stage)
        await self.finish(stage)

    async def finish(self, stage: Stage) -> None:
        """Wait for the end (I4), and see that everyone has a reason (I8) and nothing more is written (I7)."""
        await stage.until(self.end, f"the end of {self.name}")
        await stage.visible()
        await stage.quiet(seconds=0.3)


def over(*names: str, waiting: int = 0) -> End:
    """Say that these are over, and so many others wait."""

    def end(seen: Mapping[str, Sight]) -> bool:
        idle = sum(1 for each in seen.values() if each.paused and not each.clusters)
        return all(name in seen and seen[name].over for name in names) and idle == waiting

    return end


async def nothing(_: Stage) -> None:
    """Let it be."""


async def _chain(stage: Stage) -> None:
    await stage.cast.queue("chain")
    await stage.cast.cluster("m1", cpu="2")
    for number in range(4):
        await stage.cast.job(f"link-{number}", "chain", cpu=2)


async def _shared(stage: Stage) -> None:
    await stage.cast.queue("light", weight=1)
    await stage.cast.queue("heavy", weight=3)
    for number in range(4):
        for queue in ("light", "heavy"):
            await stage.cast.job(f"{queue}-{number}", queue, endless=True)


async def _shared_room(stage: Stage) -> None:
    await stage.cast.cluster("m1", cpu="4")


def _shared_end(seen: Mapping[str, Sight]) -> bool:
    runs = [name.rpartition("-")[0] for name, each in seen.items() if each.admitted]
    return (runs.count("light"), runs.count("heavy")) == (1, 3)


async def _gangs(stage: Stage) -> None:
    await stage.cast.queue("gangs", capability={"cpu": "6"})
    await stage.cast.cluster("m1", cpu="7")
    await stage.cast.cluster("m2", cpu="7")
    for number in range(4):
        await stage.cast.job(f"gang-{number}", "gangs", replicas=3)
    await stage.cast.job("too-big", "gangs", replicas=7)


async def _mended(stage: Stage) -> None:
    """Somebody has preset clusters on one; and what runs will be paused by somebody."""
    await stage.cast.queue("mended")
    await stage.cast.cluster("m1", cpu="3")
    uid = await stage.cast.template("preset", "mended", cpu=5)
    await stage.cast.bind("preset", uid, clusters=[{"name": "m1"}])
    await stage.cast.job("runs", "mended", endless=True)


async def _pause(stage: Stage) -> None:
    await stage.admitted("runs")
    await stage.cast.merge(stage.cast.path("runs"), {"spec": {"suspension": {"scheduling": True}}})


def _mended_end(seen: Mapping[str, Sight]) -> bool:
    preset, runs = seen["preset"], seen["runs"]
    return runs.admitted and preset.paused and not preset.clusters


async def _again(stage: Stage) -> None:
    await stage.cast.queue("again")
    await stage.cast.cluster("m1", cpu="2")
    await stage.cast.job("stays", "again", endless=True)
    await stage.cast.job("comes-back", "again", endless=True)


async def _bind_again(stage: Stage) -> None:
    """The binding goes and comes, as another one of its name."""
    await stage.admitted("stays")
    uid = stage.history.now["jobs"][stage.cast.namespace, "comes-back"]["metadata"]["uid"]
    await stage.cast.delete(stage.cast.path("comes-back"))
    await stage.cast.bind("comes-back", uid)


def _again_end(seen: Mapping[str, Sight]) -> bool:
    return seen["stays"].admitted and "comes-back" in seen and seen["comes-back"].admitted


async def _ebb(stage: Stage) -> None:
    await stage.cast.queue("open")
    await stage.cast.queue("closes")
    await stage.cast.cluster("m1", cpu="4")
    for number in range(2):
        await stage.cast.job(f"first-{number}", "open", cpu=2, endless=True)


async def _flow(stage: Stage) -> None:
    """The room shrinks under what runs, a queue closes, and room comes back."""
    await stage.admitted("first-0", "first-1")
    await stage.cast.summarize("m1", cpu="2")
    await stage.cast.merge("/apis/scheduling.volcano.sh/v1beta1/queues/closes/status", {"status": {"state": "Closed"}})
    await stage.cast.job("late", "open", cpu=2)
    await stage.cast.summarize("m1", cpu="6")
    await stage.done("late")
    # Nobody can know at once that a queue was closed.
    await asyncio.sleep(0.5)
    await stage.cast.job("shut-out", "closes", cpu=1)


SCENARIOS = (
    Scenario("chain", _chain, nothing, over(*(f"link-{number}" for number in range(4))), 4),
    Scenario("shared", _shared, _shared_room, _shared_end, 4),
    Scenario("gangs", _gangs, nothing, over(*(f"gang-{number}" for number in range(4)), waiting=1), 4),
    Scenario("mended", _mended, _pause, _mended_end, 3),
    Scenario("again", _again, _bind_again, _again_end, 3),
    Scenario("ebb", _ebb, _flow, over("late", waiting=1), 3),
)
