"""The controller is shot at random moments; nothing is lost and nothing admitted twice."""

import asyncio
import random

from localup.stack import Stack
from tests.e2e.arena import Arena

SEED = 20_261_121
JOBS = 40
KILLS = 20
CAPACITY = 6


async def shoot(stack: Stack, arena: Arena, dice: random.Random) -> int:
    """Kill and start the controller *KILLS* times while the run goes on; return how often."""
    for number in range(KILLS):
        await asyncio.sleep(dice.uniform(0, 1.1))
        stack.controller.kill()
        await asyncio.to_thread(stack.start_controller)
        if len(arena.observer.finished()) == JOBS:
            return number + 1
    return KILLS


async def test_twenty_kills_lose_nothing_and_admit_nothing_twice(stack, arena):
    dice = random.Random(SEED)
    cpus = {f"job-{number}": dice.choice([1, 1, 2, 3]) for number in range(JOBS)}
    await arena.cluster("c1", cpu=str(CAPACITY))
    await arena.queue("shot-at", capability={"cpu": str(CAPACITY - 1)})
    await arena.policy()
    for name, cpu in cpus.items():
        await arena.job(name, "shot-at", cpu=cpu, runtime=f"{dice.randrange(200, 2500)}ms")
    kills = await shoot(stack, arena, dice)
    await arena.observer.until(lambda seen: len(seen.finished()) == JOBS, "every job done", seconds=90)
    assert kills == KILLS
    held = [sum(cpus[name] for name, moment in state.items() if moment.holds) for state in arena.observer.walk()]
    assert max(held) <= CAPACITY - 1
    for name in cpus:
        lives = [moment for moment in arena.observer.moments if moment.job == name]
        assert turns(lives) == 1, f"{name} was admitted more than once"
        assert all(moment.record["uid"] == moment.uid for moment in lives if moment.is_admitted)


def turns(lives) -> int:
    """Return how often a binding went from paused to admitted."""
    admitted = [moment.is_admitted for moment in lives]
    return sum(1 for before, after in zip([False, *admitted], admitted, strict=False) if after and not before)
