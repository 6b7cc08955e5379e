"""The controller is killed at random times; no job is lost or admitted twice."""

import asyncio
import random
from collections.abc import Sequence

from localup.stack import Stack
from tests.e2e.environment import Environment

SEED = 20_261_121
KILLS = 20
CAPACITY = 6


async def submit(environment: Environment, dice: random.Random, names: Sequence[str]) -> dict[str, int]:
    """Submit jobs of random size and run time; return their CPUs by name."""
    cpus = {name: dice.choice([1, 1, 2, 3]) for name in names}
    for name, cpu in cpus.items():
        await environment.job(name, "shot-at", cpu=cpu, runtime=f"{dice.randrange(200, 1500)}ms")
    return cpus


async def test_twenty_kills_lose_no_job_and_admit_none_twice(stack: Stack, environment: Environment):
    dice, cpus = random.Random(SEED), {}
    await environment.cluster("c1", cpu=str(CAPACITY))
    await environment.queue("shot-at", capability={"cpu": str(CAPACITY - 1)})
    await environment.policy()
    for number in range(KILLS):
        cpus |= await submit(environment, dice, [f"job-{number}-{letter}" for letter in "ab"])
        wanted = min(len(cpus), len(environment.observer.admitted()) + dice.randrange(3))
        await environment.observer.until(
            lambda seen, wanted=wanted: len(seen.admitted()) >= wanted, f"{wanted} admitted"
        )
        await asyncio.sleep(dice.uniform(0, 0.3))
        stack.controller.kill()
        await asyncio.to_thread(stack.start_controller)
    await environment.observer.until(lambda seen: len(seen.finished()) == len(cpus), "every job done")
    held = [sum(cpus[name] for name, moment in state.items() if moment.holds) for state in environment.observer.walk()]
    assert max(held) <= CAPACITY - 1
    for name in cpus:
        lives = [moment for moment in environment.observer.moments if moment.job == name]
        assert turns(lives) == 1, f"{name} was admitted more than once"
        assert all(moment.record["uid"] == moment.uid for moment in lives if moment.is_admitted)


def turns(lives) -> int:
    """Return how often a binding changed from suspended to admitted."""
    admitted = [moment.is_admitted for moment in lives]
    return sum(1 for before, after in zip([False, *admitted], admitted, strict=False) if after and not before)
