"""The main job from end to end: real server, real webhook, real controller; Karmada and members stood in for."""

import asyncio
from pathlib import Path

import pytest
import yaml

from tests.e2e.environment import job
from tests.waiting import LIMIT_SECONDS

EXAMPLES = Path(__file__).parents[2] / "examples"


def charged(state, cpus) -> int:
    """The CPUs that are held at one moment, by the jobs' own manifests."""
    return sum(cpus[name] for name, moment in state.items() if moment.holds)


@pytest.mark.smoke
async def test_a_binding_is_stored_paused_and_keeps_what_its_policy_says_of_dispatching(arena):
    await arena.policy(dispatching=True)
    await arena.job("held", "nowhere")
    await arena.observer.until(lambda seen: "held" in seen.now, "binding of the job")
    first = arena.observer.moments[0]
    assert (first.paused, first.dispatching, first.clusters) == (True, True, ())


@pytest.mark.smoke
async def test_a_job_goes_all_the_way(arena):
    await arena.cluster("c1", cpu="4")
    await arena.queue("all-the-way")
    await arena.policy()
    await arena.job("train", "all-the-way", replicas=2)
    await arena.observer.until(lambda seen: seen.finished() == ["train"], "job finished")
    record = arena.observer.now["train"].record
    assert record["queue"] == "all-the-way"
    assert record["clusters"] == ["c1"]
    assert record["charge"] == {"cpu": "2", "memory": "2Gi", "pods": "2"}
    assert record["uid"] == await arena.uid("train")


@pytest.mark.smoke
async def test_gangs_are_never_admitted_in_part(arena):
    await arena.cluster("c1", cpu="9")
    await arena.queue("gangs")
    await arena.policy()
    for number in range(5):
        await arena.job(f"gang-{number}", "gangs", replicas=6)
    await arena.observer.until(lambda seen: len(seen.finished()) == 5, "five gangs of six on room for nine pods")
    assert max(charged(state, dict.fromkeys(state, 6)) for state in arena.observer.walk()) == 6


async def test_gpus_that_stand_under_limits_only_are_counted(arena):
    await arena.cluster("c1", cpu="64", gpu="4")
    await arena.queue("default")
    await arena.policy()
    gang = yaml.safe_load((EXAMPLES / "torchrun-gang.yaml").read_text())
    for number in range(2):
        copy = {**gang, "metadata": {"name": f"torchrun-{number}", "annotations": {"volcano-global.io/runtime": "1s"}}}
        await arena.manifest(copy)
    await arena.observer.until(lambda seen: len(seen.finished()) == 2, "both gangs done, one after the other")
    assert max(charged(state, dict.fromkeys(state, 3)) for state in arena.observer.walk()) == 3
    assert arena.observer.now["torchrun-0"].record["charge"]["nvidia.com/gpu"] == "3"


@pytest.mark.smoke
async def test_two_tenants_at_one_to_three_get_one_to_three(arena):
    await arena.queue("tenant-a", weight=1)
    await arena.queue("tenant-b", weight=3)
    await arena.policy()
    for number in range(8):
        await arena.job(f"a-{number}", "tenant-a", runtime="60s")
        await arena.job(f"b-{number}", "tenant-b", runtime="60s")
    await arena.observer.until(lambda seen: len(seen.now) == 16, "all bindings there")
    await arena.cluster("c1", cpu="8")
    await arena.observer.until(lambda seen: len(seen.admitted()) == 8, "as many as fit")
    tenants = [name[0] for name in arena.observer.admitted()]
    assert (tenants.count("a"), tenants.count("b")) == (2, 6)


async def test_an_urgent_queue_goes_first(arena):
    await arena.queue("plain")
    await arena.queue("urgent", priority=10)
    await arena.policy()
    for number in range(3):
        await arena.job(f"plain-{number}", "plain")
    await arena.job("urgent", "urgent")
    await arena.observer.until(lambda seen: len(seen.now) == 4, "all bindings there")
    await arena.cluster("c1", cpu="1")
    await arena.observer.until(lambda seen: len(seen.finished()) == 4, "all done, one after the other")
    assert arena.observer.order()[0] == "urgent"


async def test_a_higher_job_priority_goes_first_in_its_queue(arena):
    await arena.priority_class("arena-high", 1000)
    await arena.queue("ordered")
    await arena.policy()
    for number in range(3):
        await arena.job(f"plain-{number}", "ordered")
    await arena.job("high", "ordered", priority="arena-high")
    await arena.observer.until(lambda seen: len(seen.now) == 4, "all bindings there")
    await arena.cluster("c1", cpu="1")
    await arena.observer.until(lambda seen: len(seen.finished()) == 4, "all done, one after the other")
    assert arena.observer.order()[0] == "high"


async def test_a_capability_is_exceeded_at_no_resource_version(arena):
    cpus = {f"job-{number}": 1 + number % 3 for number in range(12)}
    await arena.cluster("c1", cpu="50")
    await arena.queue("capped", capability={"cpu": "4"})
    await arena.policy()
    for name, cpu in cpus.items():
        await arena.job(name, "capped", cpu=cpu, runtime="300ms")
    await arena.observer.until(lambda seen: len(seen.finished()) == 12, "all done within the capability")
    peak = max(charged(state, cpus) for state in arena.observer.walk())
    assert 3 <= peak <= 4


async def test_the_room_of_a_finished_job_goes_to_the_next(arena):
    await arena.cluster("c1", cpu="1")
    await arena.queue("chain")
    await arena.policy()
    for number in range(6):
        await arena.job(f"link-{number}", "chain", runtime="200ms")
    await arena.observer.until(lambda seen: len(seen.finished()) == 6, "six jobs one after the other")
    assert max(charged(state, dict.fromkeys(state, 1)) for state in arena.observer.walk()) == 1


async def test_deleting_a_preserved_job_frees_no_quota_while_its_pods_run(arena):
    """What its policy says was stored before the policies that refuse it."""
    await arena.cluster("c1", cpu="8")
    await arena.queue("capped", capability={"cpu": "2"})
    await arena.policy(preserves=True)
    await arena.job("kept", "capped", cpu=2, runtime="15s")
    await arena.observer.until(lambda seen: "kept" in seen.now and seen.now["kept"].is_running, "job running")
    async with asyncio.timeout(LIMIT_SECONDS):
        while await arena.cpus("c1", "allocated") != 2000:  # noqa: ASYNC110 -- a status is polled
            await asyncio.sleep(0.1)
    await arena.delete_job("kept")
    await arena.observer.until(lambda seen: "kept" not in seen.now, "its binding gone")
    await arena.job("next", "capped", cpu=2, runtime="1s")
    await arena.observer.until(lambda seen: "next" in seen.now, "binding of the next")
    async with asyncio.timeout(LIMIT_SECONDS):
        polls = 0
        while await arena.cpus("c1", "allocated") == 2000:
            assert arena.observer.now["next"].paused
            polls += 1
            await asyncio.sleep(0.1)
    assert polls > 10
    await arena.observer.until(lambda seen: seen.finished() == ["next"], "the next after the pods have ended")


async def test_a_closed_queue_admits_nobody_and_others_go_on(arena):
    await arena.queue("shut")
    await arena.close("shut")
    await arena.queue("open")
    await arena.policy()
    await arena.job("waits", "shut")
    await arena.observer.until(lambda seen: "waits" in seen.now, "binding of the job")
    await arena.cluster("c1", cpu="4")
    await arena.job("runs", "open")
    await arena.observer.until(lambda seen: seen.finished() == ["runs"], "the other job")
    assert arena.observer.now["waits"].paused


async def test_what_fits_nowhere_waits_and_blocks_nobody(arena):
    await arena.cluster("c1", cpu="2")
    await arena.cluster("c2", cpu="2")
    await arena.queue("mixed", dequeueStrategy="fifo")
    await arena.policy()
    await arena.manifest(job("huge", "mixed", cpu=3))
    await arena.job("small", "mixed")
    await arena.observer.until(lambda seen: seen.finished() == ["small"], "the small one")
    assert arena.observer.now["huge"].paused
