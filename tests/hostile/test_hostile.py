"""Hostile tenants write every kind that the role `edit` permits; other tenants are not affected."""

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from localup.controlplane import ControlPlane
from localup.stack import Stack
from tests.benchmarks.figures import process_bytes
from tests.hostile import ground
from tests.hostile.audit import Key, charges, differences, memory_limit, miscounts, running, samples, usage
from tests.hostile.bystanders import Latencies, percentile
from tests.hostile.ground import Ground
from tests.hostile.traffic import PER_SECOND, Request, harmless, hostile

SEED = int(os.environ.get("HOSTILE_SEED", "20261122"))
SAMPLE_SECONDS = 10
LONG_SECONDS = 600
SETTLE_SECONDS = 30
IDLE_SECONDS = 60
"""After the requests, jobs that are on their way are waited for while any is admitted within this time."""


@pytest.fixture
def stack(fresh_control_plane: Callable[..., ControlPlane]) -> Iterator[Stack]:
    """Yield the system on a separate control plane."""
    yield from ground.start(fresh_control_plane())


async def test_hostile_tenants_stop_no_cycle_and_no_other_tenant(stack: Stack) -> None:
    async with ground.opened(stack) as there:
        await measured(there, hostile_requests(SAMPLE_SECONDS), seconds=SAMPLE_SECONDS)
        await assert_sound(there)
        await assert_charged(there)


@pytest.mark.long
async def test_hostile_tenants_delay_others_no_more_than_harmless_ones(stack: Stack) -> None:
    requests = hostile_requests(LONG_SECONDS)
    async with ground.opened(stack) as there:
        calm = await measured(there, list(harmless(requests, ground.PLAIN)), seconds=LONG_SECONDS)
        wild = await measured(there, requests, seconds=LONG_SECONDS)
        await assert_sound(there)
        await assert_charged(there)
    assert percentile(wild.admissions, 50) <= 2 * percentile(calm.admissions, 50)
    assert percentile(wild.admissions, 99) <= 2 * percentile(calm.admissions, 99)
    assert percentile(wild.creates, 99) <= 3 * percentile(calm.creates, 99)


def hostile_requests(seconds: int) -> list[Request]:
    return list(islice(hostile(random.Random(SEED), ground.WILD), seconds * PER_SECOND))


async def measured(there: Ground, requests: list[Request], *, seconds: float) -> Latencies:
    """Send *requests*, wait for the jobs of the other tenants, and return their latencies."""
    latencies = await there.measure(requests, seconds=seconds)
    await there.drain(idle_seconds=IDLE_SECONDS)
    return latencies


async def assert_sound(there: Ground) -> None:
    """Check that no cycle, process or other tenant failed."""
    url = there.stack.metrics_url
    names = ("failed_cycles_total", "internal_errors_total")
    by_metric = {name: await asyncio.to_thread(samples, url, f"volcano_global_{name}") for name in names}
    counts = {name: sum(sample.value for sample in of_metric) for name, of_metric in by_metric.items()}
    memory = {
        name: (process_bytes(pid, "VmHWM"), memory_limit(name))
        for name, pid in (("controller", there.stack.controller.pid), ("webhook", there.stack.webhook.pid))
        if pid is not None
    }
    print(counts, {name: f"{peak >> 20} of {limit >> 20} MiB" for name, (peak, limit) in memory.items()})
    assert counts["failed_cycles_total"] == 0
    assert counts["internal_errors_total"] == 0
    assert there.waiting() == []
    assert not there.restarted()
    assert all(peak < limit for peak, limit in memory.values())


async def assert_charged(there: Ground) -> None:
    """Check that charges equal the jobs running in member clusters and the usage by queue.

    The lists are read one after the other while jobs start and end, so only lasting differences count.
    """
    lasting: dict[Key, str] | None = None
    for _ in range(SETTLE_SECONDS):
        before = await asyncio.to_thread(usage, there.stack.metrics_url)
        charged, run = await charges(there.api), await running(there.api)
        after = await asyncio.to_thread(usage, there.stack.metrics_url)
        wrong = differences(charged, run) | miscounts(charged, before, after)
        lasting = wrong if lasting is None else {key: text for key, text in wrong.items() if key in lasting}
        if not lasting:
            break
        await asyncio.sleep(1)
    print(f"{len(run)} jobs run in members, {len(charged)} are charged")
    assert run.keys() & charged.keys(), "nothing ran that could be compared"
    assert lasting == {}
