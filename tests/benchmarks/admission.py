"""Admissions per second from end to end, beside bare patches against the same API server in the same run.

Everything fits and the stand-in for Karmada is off. The clock starts when the
cluster that has the room appears, and stops when a watch of our own has seen
the last binding resumed.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

from controller.kube import Api
from localup.binaries import provide
from localup.controlplane import ControlPlane
from localup.etcd import Etcd
from localup.stack import Stack
from tests.benchmarks.figures import Figure
from tests.benchmarks.resumed import watching
from tests.benchmarks.seed import (
    CLUSTER,
    JOB_CPU,
    Batch,
    binding_path,
    offer_cluster,
    pause,
    seed_batch,
    seed_queues,
    withdraw_cluster,
)

GOAL_RATIO = 0.95
ROOT = Path(__file__).parents[2]
PATIENCE = 300.0


@contextmanager
def ground() -> Iterator[ControlPlane]:
    """Start a store and a control plane of our own."""
    with Etcd(provide()) as etcd, ControlPlane(etcd) as plane:
        yield plane


def measure(*, quick: bool) -> list[Figure]:
    """Run the family and return its figures."""
    count, rounds = (300, 1) if quick else (3_000, 3)
    with ground() as plane:
        return asyncio.run(_measure(plane, count, rounds))


async def _measure(plane: ControlPlane, count: int, rounds: int) -> list[Figure]:
    judged, bare = Batch("judged", count, 100), Batch("bare", count, 0)
    latencies: list[float] = []
    ends: list[float] = []
    straight: list[float] = []
    async with Api.connect(plane.kubeconfig("admin")) as api:
        print(f"seeding twice {count} bindings …", flush=True)
        await seed_queues(api, judged.queues)
        await seed_batch(api, judged)
        await seed_batch(api, bare)
        for number in range(rounds):
            straight.append(await _bare_rate(plane, api, bare))
            ends.append(await _admission_rate(plane, api, judged, latencies if number == rounds - 1 else None))
            print(f"round {number + 1}: {ends[-1]:.0f} admissions/s, {straight[-1]:.0f} bare patches/s", flush=True)
    return _figures(ends, straight, latencies)


def _figures(ends: list[float], straight: list[float], latencies: list[float]) -> list[Figure]:
    bare = statistics.median(straight)
    ratio = statistics.median(end / patch for end, patch in zip(ends, straight, strict=True))
    cuts = statistics.quantiles(latencies, n=100) if len(latencies) > 1 else latencies * 99
    return [
        Figure("admissions_per_second", statistics.median(ends), "1/s", beside=bare),
        Figure("bare_patches_per_second", bare, "1/s"),
        Figure("admission_ratio", ratio, "", goal=f">= {GOAL_RATIO}"),
        Figure("finish_to_admission_p50_ms", cuts[49] * 1000, "ms"),
        Figure("finish_to_admission_p99_ms", cuts[98] * 1000, "ms"),
    ]


async def _bare_rate(plane: ControlPlane, api: Api, batch: Batch) -> float:
    arguments = [str(plane.kubeconfig("volcano-global-controller")), batch.namespace, str(batch.count)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.benchmarks.bare", *arguments),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the bare client has no pipes")
    if await process.stdout.readline() != b"ready\n":
        raise RuntimeError("the bare client did not start; its error stands above")
    async with watching(api, batch.namespace) as resumed:
        begun = time.monotonic()
        process.stdin.write(b"go\n")
        await process.stdin.drain()
        ended = await resumed.reached(batch.count, seconds=PATIENCE)
    await process.wait()
    await pause(api, batch)
    return batch.count / (ended - begun)


async def _admission_rate(plane: ControlPlane, api: Api, batch: Batch, latencies: list[float] | None) -> float:
    async with _controller(plane), watching(api, batch.namespace) as resumed:
        begun = time.monotonic()
        await offer_cluster(api, batch.count * JOB_CPU)
        ended = await resumed.reached(batch.count, seconds=PATIENCE)
    if latencies is not None:
        latencies.extend(await _latencies(plane, api, batch))
    await withdraw_cluster(api)
    await pause(api, batch)
    return batch.count / (ended - begun)


async def _latencies(plane: ControlPlane, api: Api, batch: Batch) -> list[float]:
    """Finish one job after the other while the cluster is full; return the seconds until the next was resumed."""
    waiting = 100
    more = Batch("waiting", waiting, batch.queues)
    await seed_batch(api, more)
    found: list[float] = []
    async with _controller(plane), watching(api, more.namespace) as resumed:
        for number, name in enumerate(batch.names()[:waiting], start=1):
            begun = time.monotonic()
            await _finish(api, batch.namespace, name)
            found.append(await resumed.reached(number, seconds=PATIENCE) - begun)
    return found


async def _finish(api: Api, namespace: str, name: str) -> None:
    item = {"clusterName": CLUSTER, "applied": True, "status": {"state": {"phase": "Completed"}}}
    body = msgspec.json.encode({"status": {"aggregatedStatus": [item]}})
    await api.patch(f"{binding_path(namespace, name)}/status", body, kind="merge")


@asynccontextmanager
async def _controller(plane: ControlPlane) -> AsyncIterator[Stack]:
    """Run the controller alone while the block runs."""
    stack = Stack(plane, webhook=False, karmada=False)
    await asyncio.to_thread(stack.start)
    try:
        yield stack
    finally:
        await asyncio.to_thread(stack.stop)
