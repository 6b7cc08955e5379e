"""Measures admissions per second end to end, compared with plain patches to the same API server.

All workloads fit, and the simulated Karmada is off. The clock starts when the cluster with capacity is
created, and stops when a separate watch has observed the last binding resumed.
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from controller.kube.client import Api
from localup.binaries import ensure_binaries
from localup.controlplane import ControlPlane, Etcd
from localup.stack import Stack
from tests.benchmarks.figures import Figure
from tests.benchmarks.resume_watch import resumed_bindings
from tests.benchmarks.seed import (
    JOB_CPU,
    Batch,
    finish_job,
    offer_cluster,
    pause,
    seed_batch,
    seed_queues,
    withdraw_cluster,
)
from tests.benchmarks.store_seed import fill

#: Of a bare client that also watches.
GOAL_RATIO = 0.95
GOAL_RATIO_20K = 0.90
GOAL_CPU_RATIO = 2
ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 300.0
#: After its start the controller uses less of a core than this; events about pending workloads take a few hundredths.
_STARTED_CPU_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Pace:
    """Speed of one round."""

    rate: float
    """Bindings per second."""
    cpu_microseconds: float
    """Processor time of the client per binding."""


@contextmanager
def ground() -> Iterator[ControlPlane]:
    """Start an own store and control plane."""
    with Etcd(ensure_binaries()) as etcd, ControlPlane(etcd) as plane:
        yield plane


def measure(*, quick: bool) -> list[Figure]:
    """Run the benchmark and return its figures."""
    if quick:
        with ground() as plane:
            return asyncio.run(_measure(plane, 300, rounds=1))
    figures: list[Figure] = []
    for count, rounds, goal, suffix in ((3_000, 3, GOAL_RATIO, ""), (20_000, 1, GOAL_RATIO_20K, "_20k")):
        with ground() as plane:
            measured = asyncio.run(_measure(plane, count, rounds=rounds, goal=goal))
        figures.extend(replace(figure, name=f"{figure.name}{suffix}") for figure in measured)
    return figures


async def _measure(plane: ControlPlane, count: int, *, rounds: int, goal: float = GOAL_RATIO) -> list[Figure]:
    decided, bare = Batch("judged", count, 100), Batch("bare", count, 0)
    latencies: list[float] = []
    ends: list[Pace] = []
    straight: list[Pace] = []
    watched: list[Pace] = []
    async with Api.connect(plane.kubeconfig("admin")) as api:
        print(f"seeding twice {count} bindings …", flush=True)
        await seed_queues(api, decided.queues)
        for batch in (decided, bare):
            await fill(plane, api, batch)
        for number in range(rounds):
            straight.append(await _bare_rate(plane, api, bare))
            watched.append(await _bare_rate(plane, api, bare, "watch"))
            ends.append(await _admission_rate(plane, api, decided, latencies if number == rounds - 1 else None))
            paces = {"admissions": ends[-1], "bare patches": straight[-1], "watching patches": watched[-1]}
            shown = [f"{pace.rate:.0f} {name}/s ({pace.cpu_microseconds:.0f} us)" for name, pace in paces.items()]
            print(f"round {number + 1}: {', '.join(shown)}", flush=True)
    return _figures(ends, straight, watched, latencies, goal=goal)


def _figures(
    ends: list[Pace], straight: list[Pace], watched: list[Pace], latencies: list[float], *, goal: float
) -> list[Figure]:
    bare = statistics.median(pace.rate for pace in straight)
    ratio, among_hearers = (
        statistics.median(end.rate / patch.rate for end, patch in zip(ends, patches, strict=True))
        for patches in (straight, watched)
    )
    ours, least, hearing = (
        statistics.median(pace.cpu_microseconds for pace in paces) for paces in (ends, straight, watched)
    )
    cpu_ratio = statistics.median(
        end.cpu_microseconds / patch.cpu_microseconds for end, patch in zip(ends, watched, strict=True)
    )
    cuts = statistics.quantiles(latencies, n=100) if len(latencies) > 1 else latencies * 99
    return [
        Figure("admissions_per_second", statistics.median(pace.rate for pace in ends), "1/s", baseline=bare),
        Figure("bare_patches_per_second", bare, "1/s"),
        Figure("admission_ratio", ratio, ""),
        Figure("watching_patches_per_second", statistics.median(pace.rate for pace in watched), "1/s", baseline=bare),
        Figure("admission_ratio_to_watching", among_hearers, "", goal=f">= {goal}"),
        Figure("cpu_microseconds_per_admission", ours, "us", baseline=least),
        Figure("cpu_microseconds_per_watching_patch", hearing, "us", baseline=least),
        Figure("cpu_ratio_to_watching", cpu_ratio, "", goal=f"<= {GOAL_CPU_RATIO}"),
        Figure("finish_to_admission_p50_ms", cuts[49] * 1000, "ms"),
        Figure("finish_to_admission_p99_ms", cuts[98] * 1000, "ms"),
    ]


async def _bare_rate(plane: ControlPlane, api: Api, batch: Batch, *options: str) -> Pace:
    arguments = [str(plane.kubeconfig("volcano-global-controller")), batch.namespace, str(batch.count), *options]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.benchmarks.bare_patches", *arguments),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the bare client has no pipes")
    if await process.stdout.readline() != b"ready\n":
        raise RuntimeError("the bare client did not start; its error stands above")
    async with resumed_bindings(api, batch.namespace) as resumed:
        begun = time.monotonic()
        process.stdin.write(b"go\n")
        await process.stdin.drain()
        ended = await resumed.reached(batch.count, seconds=TIMEOUT_SECONDS)
    spent = float(await process.stdout.readline())
    await process.wait()
    await pause(api, batch)
    return Pace(batch.count / (ended - begun), spent / batch.count * 1e6)


async def _admission_rate(plane: ControlPlane, api: Api, batch: Batch, latencies: list[float] | None) -> Pace:
    async with running(Stack(plane, webhook=False, karmada=False)) as stack:
        pace = await admit_batch(stack, api, batch)
    if latencies is not None:
        latencies.extend(await _latencies(plane, api, batch))
    await withdraw_cluster(api)
    await pause(api, batch)
    return pace


async def admit_batch(stack: Stack, api: Api, batch: Batch) -> Pace:
    """Create a cluster in which all of *batch* fits, and return the speed of the admissions."""
    async with resumed_bindings(api, batch.namespace) as resumed:
        before = cpu_seconds(stack)
        begun = time.monotonic()
        await offer_cluster(api, batch.count * JOB_CPU)
        ended = await resumed.reached(batch.count, seconds=TIMEOUT_SECONDS)
        spent = cpu_seconds(stack) - before
    return Pace(batch.count / (ended - begun), spent / batch.count * 1e6)


def cpu_seconds(stack: Stack) -> float:
    """Return the controller's processor time."""
    return process_seconds(stack.controller.pid)


async def cpu_share(stack: Stack, seconds: float) -> float:
    """Return how much of a core the controller uses during the next *seconds*."""
    before, begun = cpu_seconds(stack), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu_seconds(stack) - before) / (time.monotonic() - begun)


def process_seconds(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _latencies(plane: ControlPlane, api: Api, batch: Batch) -> list[float]:
    """Finish jobs one by one while the cluster is full; return the seconds until the next one was resumed."""
    waiting = 100
    more = Batch("waiting", waiting, batch.queues)
    await seed_batch(api, more)
    latencies: list[float] = []
    stack = Stack(plane, webhook=False, karmada=False)
    async with running(stack), resumed_bindings(api, more.namespace) as resumed:
        for number, name in enumerate(batch.names()[:waiting], start=1):
            begun = time.monotonic()
            await finish_job(api, batch.namespace, name)
            latencies.append(await resumed.reached(number, seconds=TIMEOUT_SECONDS) - begun)
    return latencies


@asynccontextmanager
async def running(stack: Stack) -> AsyncIterator[Stack]:
    """Run the processes of *stack* while the block runs, which begins when the controller has finished its start.

    The bare client has read its list, too, before it is measured. Raises ``TimeoutError`` if the controller stays busy.
    """
    await asyncio.to_thread(stack.start)
    try:
        if stack.controller.pid is not None:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while await cpu_share(stack, 1) > _STARTED_CPU_SHARE:
                    pass
        yield stack
    finally:
        await asyncio.to_thread(stack.stop)
