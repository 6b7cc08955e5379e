"""End-to-end tests of admission with real API server, webhook and controller; Karmada is the stand-in or real."""

import asyncio
from pathlib import Path

import pytest
import yaml

from tests.waiting import LIMIT_SECONDS

EXAMPLES = Path(__file__).parents[2] / "examples"


def charged(state, cpus) -> int:
    """Return the charged CPUs in one state, by the jobs' manifests."""
    return sum(cpus[name] for name, moment in state.items() if moment.holds)


@pytest.mark.smoke
async def test_binding_is_suspended_and_keeps_dispatching_settings(environment):
    await environment.policy(dispatching=True)
    await environment.job("held", "nowhere")
    await environment.observer.until(lambda seen: "held" in seen.now, "binding of the job")
    first = environment.observer.moments[0]
    assert (first.suspended, first.dispatching, first.clusters) == (True, True, ())


@pytest.mark.smoke
async def test_job_is_admitted_runs_and_completes(environment):
    await environment.cluster("c1", cpu="4")
    await environment.queue("all-the-way")
    await environment.policy()
    await environment.job("train", "all-the-way", replicas=2)
    await environment.observer.until(lambda seen: seen.finished() == ["train"], "job finished")
    record = environment.observer.now["train"].record
    assert record["queue"] == "all-the-way"
    assert record["clusters"] == ["c1"]
    assert record["charge"] == {"cpu": "2", "memory": "2Gi", "pods": "2"}
    assert record["uid"] == await environment.uid("train")


@pytest.mark.smoke
async def test_gangs_are_never_admitted_partially(environment):
    await environment.cluster("c1", cpu="9")
    await environment.queue("gangs")
    await environment.policy()
    for number in range(5):
        await environment.job(f"gang-{number}", "gangs", replicas=6)
    await environment.observer.until(lambda seen: len(seen.finished()) == 5, "five gangs of six on room for nine pods")
    assert max(charged(state, dict.fromkeys(state, 6)) for state in environment.observer.walk()) == 6


async def test_gpus_in_limits_only_are_counted(environment):
    await environment.cluster("c1", cpu="64", gpu="4")
    await environment.queue("default")
    await environment.policy()
    gang = yaml.safe_load((EXAMPLES / "torchrun-gang.yaml").read_text())
    for number in range(2):
        copy = {**gang, "metadata": {"name": f"torchrun-{number}", "annotations": {"volcano-global.io/runtime": "1s"}}}
        await environment.manifest(copy)
    await environment.observer.until(lambda seen: len(seen.finished()) == 2, "both gangs done, one after the other")
    assert max(charged(state, dict.fromkeys(state, 3)) for state in environment.observer.walk()) == 3
    assert environment.observer.now["torchrun-0"].record["charge"]["nvidia.com/gpu"] == "3"


@pytest.mark.smoke
async def test_weights_one_and_three_divide_usage_one_to_three(environment):
    await environment.queue("tenant-a", weight=1)
    await environment.queue("tenant-b", weight=3)
    await environment.policy()
    for number in range(8):
        await environment.job(f"a-{number}", "tenant-a", runtime="60s")
        await environment.job(f"b-{number}", "tenant-b", runtime="60s")
    await environment.observer.until(lambda seen: len(seen.now) == 16, "all bindings there")
    await environment.cluster("c1", cpu="8")
    await environment.observer.until(lambda seen: len(seen.admitted()) == 8, "as many as fit")
    tenants = [name[0] for name in environment.observer.admitted()]
    assert (tenants.count("a"), tenants.count("b")) == (2, 6)


async def test_deleted_preserved_job_keeps_its_quota_while_pods_run(environment):
    """What its policy says was stored before the policies that refuse it."""
    await environment.cluster("c1", cpu="8")
    await environment.queue("capped", capability={"cpu": "2"})
    await environment.policy(preserves=True)
    await environment.job("kept", "capped", cpu=2, runtime="15s")
    await environment.observer.until(lambda seen: "kept" in seen.now and seen.now["kept"].is_running, "job running")
    async with asyncio.timeout(LIMIT_SECONDS):
        while await environment.cpus("c1", "allocated") != 2000:  # noqa: ASYNC110 -- a status is polled
            await asyncio.sleep(0.1)
    await environment.delete_job("kept")
    await environment.observer.until(lambda seen: "kept" not in seen.now, "its binding gone")
    await environment.job("next", "capped", cpu=2, runtime="1s")
    await environment.observer.until(lambda seen: "next" in seen.now, "binding of the next")
    async with asyncio.timeout(LIMIT_SECONDS):
        polls = 0
        while await environment.cpus("c1", "allocated") == 2000:
            assert environment.observer.now["next"].suspended
            polls += 1
            await asyncio.sleep(0.1)
    assert polls > 10
    await environment.observer.until(lambda seen: seen.finished() == ["next"], "the next after the pods have ended")
