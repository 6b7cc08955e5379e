"""F23 and F24: bursts, large numbers, and limited rates."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from localup.controlplane import ControlPlane, Etcd
from tests.benchmarks.seed import Batch, offer_cluster, seed_queues
from tests.benchmarks.store_seed import caught_up, forget_batch, store_batch
from tests.rig.harness import Harness, open_harness

ROOM = 5
MIB = 2**20
CONFIGURATION = """\
apiVersion: config.volcano-global.io/v1alpha1
kind: VolcanoGlobalConfiguration
patches: {inFlight: 3, perSecond: 10}
"""


@pytest.fixture(scope="module")
def plane(binaries) -> Iterator[ControlPlane]:
    """Yield a dedicated control plane, so that the load affects no other test."""
    with Etcd(binaries) as etcd, ControlPlane(etcd, controllers=False, audit=True) as running:
        yield running


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
    told = -1.0
    try:
        async with asyncio.timeout(seconds):
            while told != count:
                with contextlib.suppress(OSError):
                    told = await harness.controller.metric("volcano_global_pending_workloads_by_reason")
                await asyncio.sleep(0.2)
    except TimeoutError as error:
        said = harness.controller.part.output[-2000:]
        raise AssertionError(f"I8 {told} instead of {count} wait with a reason\n{said}") from error


async def test_burst_and_its_deletion_are_processed(plane, tmp_path):
    """F23: all jobs are created within seconds and deleted within seconds; the next job is admitted normally."""
    count = 1_000
    async with open_harness(plane, tmp_path, plays=False) as harness:
        batch = Batch(harness.karmada.namespace, count, 10)
        await seed_queues(harness.karmada.api, batch.queues)
        await offer_cluster(harness.karmada.api, ROOM)
        await harness.controller.start()
        before = resident(harness)
        await store_batch(plane.etcd.url, plane.prefix, batch, in_one=1)
        await waiting(harness, count - ROOM)
        await harness.until(lambda seen: admitted(seen) == ROOM, "the room is taken")
        assert resident(harness) - before < 64 * MIB + count * 16 * 1024
        await forget_batch(plane.etcd.url, plane.prefix, batch)
        await waiting(harness, 0)
        for number in range(ROOM):
            await harness.karmada.job(f"next-{number}", "queue-0")
        await harness.admitted(*(f"next-{number}" for number in range(ROOM)))
        await harness.expect_no_writes(seconds=0.5)


@pytest.mark.long
async def test_100000_pending_workloads_need_1_gib_and_no_idle_cpu(plane, tmp_path):
    """F23: 1,000 queues, 100 clusters; objects are written directly into the store."""
    count = 100_000
    slowly = ("--page-seconds", "60", "--silence-seconds", "60", "--fresh-seconds", "90")
    async with open_harness(plane, tmp_path, *slowly, plays=False) as harness:
        batch = Batch(harness.karmada.namespace, count, 1_000)
        await seed_queues(harness.karmada.api, batch.queues)
        for number in range(100):
            await harness.karmada.cluster(f"m{number}", cpu="0")
        await store_batch(plane.etcd.url, plane.prefix, batch)
        try:
            await caught_up(harness.karmada.api)
            await harness.controller.begin()
            await _ready(harness)
            await waiting(harness, count, seconds=900)
            assert resident(harness) < 1024 * MIB
            spent = processor_seconds(harness)
            await harness.expect_no_writes(seconds=10)
            assert processor_seconds(harness) - spent < 2, "an idle controller works"
        finally:
            await forget_batch(plane.etcd.url, plane.prefix, batch)
        await waiting(harness, 0, seconds=900)


async def _ready(harness: Harness) -> None:
    is_ready = False
    async with asyncio.timeout(900):
        while not is_ready:
            await asyncio.sleep(1)
            harness.controller.part.check()
            with contextlib.suppress(OSError):
                is_ready = await harness.controller.page("/readyz") == "ok"


async def test_writes_respect_the_configured_rate_limits(plane, tmp_path):
    """F24: writes per second stay within the configuration."""
    file = tmp_path / "admission.yaml"
    file.write_text(CONFIGURATION)
    names = [f"j{number}" for number in range(25)]
    async with open_harness(plane, tmp_path, "--admission-configuration", file, plays=False) as harness:
        await harness.karmada.queue("q")
        await harness.karmada.cluster("m1", cpu="90")
        for name in names:
            await harness.karmada.job(name, "q")
        await harness.controller.start()
        await harness.admitted(*names)
        times = sorted(request.at for request in harness.requests())
        assert all((later - earlier).total_seconds() > 0.8 for earlier, later in zip(times, times[12:], strict=False))
