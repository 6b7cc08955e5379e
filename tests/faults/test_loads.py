"""F23 and F24: bursts, large numbers, and limited rates."""

from pathlib import Path

import pytest

from tests.benchmarks.seed import Batch, offer_cluster, seed_queues
from tests.benchmarks.store_seed import caught_up, forget_batch, store_batch
from tests.rig.harness import Harness, open_harness
from tests.waiting import poll

ROOM = 5
MIB = 2**20


def admitted(seen) -> int:
    return sum(item.admitted for item in seen.values())


def resident(harness: Harness) -> int:
    """Return the controller's resident memory in bytes."""
    lines = Path(f"/proc/{harness.controller.part.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def processor_seconds(harness: Harness) -> float:
    """Return the controller's CPU time."""
    fields = Path(f"/proc/{harness.controller.part.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def waiting(harness: Harness, count: int, *, seconds: float = 120) -> None:
    """Wait until the controller reports a reason for *count* pending workloads (I8)."""
    await poll(
        lambda: harness.controller.metric("volcano_global_pending_workloads_by_reason"),
        f"I8 a reason for {count} jobs",
        until=lambda seen: seen == count,
        seconds=seconds,
        ignoring=(OSError,),
        log=harness.controller.log,
    )


async def test_burst_and_its_deletion_are_processed(own_plane, tmp_path):
    """F23: all jobs are created within seconds and deleted within seconds; the next job is admitted normally."""
    count = 1_000
    async with open_harness(own_plane, tmp_path, plays=False) as harness:
        batch = Batch(harness.karmada.namespace, count, 10)
        await seed_queues(harness.karmada.api, batch.queues)
        await offer_cluster(harness.karmada.api, ROOM)
        await harness.controller.start()
        before = resident(harness)
        await store_batch(own_plane.etcd.url, own_plane.prefix, batch, in_one=1)
        await waiting(harness, count - ROOM)
        await harness.until(lambda seen: admitted(seen) == ROOM, "the room is taken")
        assert resident(harness) - before < 64 * MIB + count * 16 * 1024
        await forget_batch(own_plane.etcd.url, own_plane.prefix, batch)
        await waiting(harness, 0)
        for number in range(ROOM):
            await harness.karmada.job(f"next-{number}", "queue-0")
        await harness.admitted(*(f"next-{number}" for number in range(ROOM)))
        await harness.expect_no_writes(seconds=0.5)


@pytest.mark.long
async def test_100000_pending_workloads_need_1_gib_and_no_idle_cpu(own_plane, tmp_path):
    """F23: 1,000 queues, 100 clusters; objects are written directly into the store."""
    count = 100_000
    slowly = ("--page-seconds", "60", "--silence-seconds", "60", "--fresh-seconds", "90")
    async with open_harness(own_plane, tmp_path, *slowly, plays=False) as harness:
        batch = Batch(harness.karmada.namespace, count, 1_000)
        await seed_queues(harness.karmada.api, batch.queues)
        for number in range(100):
            await harness.karmada.cluster(f"m{number}", cpu="0")
        await store_batch(own_plane.etcd.url, own_plane.prefix, batch)
        try:
            await caught_up(harness.karmada.api)
            await harness.controller.begin()
            await poll(
                lambda: harness.controller.page("/readyz"),
                "ready",
                until=lambda page: page == "ok",
                seconds=900,
                ignoring=(OSError,),
            )
            await waiting(harness, count, seconds=900)
            assert resident(harness) < 1024 * MIB
            spent = processor_seconds(harness)
            await harness.expect_no_writes(seconds=10)
            assert processor_seconds(harness) - spent < 2, "an idle controller works"
        finally:
            await forget_batch(own_plane.etcd.url, own_plane.prefix, batch)
        await waiting(harness, 0, seconds=900)


async def test_writes_respect_the_configured_rate_limits(own_plane, tmp_path):
    """F24: writes per second stay within the configuration."""
    names = [f"j{number}" for number in range(25)]
    limits = {"patches": {"inFlight": 3, "perSecond": 10}}
    async with open_harness(own_plane, tmp_path, configuration=limits, plays=False) as harness:
        await harness.start(*names, cpu="90")
        await harness.admitted(*names)
        times = sorted(request.at for request in harness.requests())
        assert all((later - earlier).total_seconds() > 0.8 for earlier, later in zip(times, times[12:], strict=False))
