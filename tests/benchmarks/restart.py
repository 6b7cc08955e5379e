"""Measures the controller's start until its first decision with many pending workloads, and its memory.

All objects exist before the start. The first admission belongs to a batch with capacity, and is observed in
the store.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from controller.api.keys import JOBS, RESOURCE_BINDINGS, Resource
from controller.kube.client import Api
from controller.kube.errors import ServerError
from localup.binaries import ensure_binaries
from localup.controlplane import ControlPlane, Etcd
from localup.stack import Stack
from tests.benchmarks.admission import cpu_seconds, cpu_share
from tests.benchmarks.figures import Figure, process_bytes
from tests.benchmarks.seed import Batch, finish_job, offer_cluster, seed_queues, withdraw_cluster
from tests.benchmarks.store_seed import fill
from tests.rig.binding_state import parse_binding
from tests.rig.history import Change, History, Key, followed, present

QUEUES = 100
ROOM = 50
EVENTS = 50
GOAL_RATIO = 1.3
#: The status of the queues and the first events are written meanwhile.
SETTLE_SECONDS = 15
IDLE_SECONDS = 20
TIMEOUT_SECONDS = 600.0
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Start:
    """Measurements of one start."""

    seconds: float
    """Time until the store had the first admission."""
    resident: int
    """Resident memory in bytes after that."""
    idle_cpu: float
    """Processor seconds per second later, while nothing changes."""


def measure(*, quick: bool, size: int | None = None) -> list[Figure]:
    """Run the benchmark and return its figures; with *size*, start once with so many pending workloads."""
    small, large = (200, 2_000) if quick else (20_000, 100_000)
    with Etcd(ensure_binaries()) as etcd, ControlPlane(etcd, controllers=False) as plane:
        return asyncio.run(_measure_events(plane, size) if size else _measure(plane, small, large))


async def _measure(plane: ControlPlane, small: int, large: int) -> list[Figure]:
    async with Api.connect(plane.kubeconfig("admin")) as api:
        await seed_queues(api, QUEUES)
        await offer_cluster(api, ROOM)
        await _fill(plane, api, ROOM)
        idle = await _start(plane)
        await _widen(api, 2 * ROOM)
        await _fill(plane, api, small)
        few = await _start(plane)
        await _widen(api, 3 * ROOM)
        await _fill(plane, api, large - small)
    bare = await _bare_list(plane)
    many = await _start(plane)
    return [
        Figure("resident_mib_20k", few.resident / _MIB, "MiB"),
        Figure("resident_mib_100k", many.resident / _MIB, "MiB", goal="< 1024"),
        Figure("resident_bytes_per_waiting", (many.resident - idle.resident) / large, "bytes", goal="<= 1500"),
        Figure("idle_cpu_seconds_per_second_100k", many.idle_cpu, "s/s", baseline=idle.idle_cpu),
        Figure("start_to_first_decision_seconds_20k", few.seconds, "s"),
        Figure("start_to_first_decision_seconds_100k", many.seconds, "s", baseline=bare),
        Figure("start_ratio_to_bare_list", many.seconds / bare, "", goal=f"<= {GOAL_RATIO}"),
    ]


async def _measure_events(plane: ControlPlane, count: int) -> list[Figure]:
    """Start with *count* pending workloads, then let admitted ones finish one by one."""
    async with Api.connect(plane.kubeconfig("admin")) as api:
        await seed_queues(api, QUEUES)
        await offer_cluster(api, ROOM)
        await _fill(plane, api, count)
        bare = await _bare_list(plane)
        async with _started(plane) as (stack, history, seconds):
            await _admitted(history, ROOM)
            cpu, resident = cpu_seconds(stack), process_bytes(stack.controller.pid or 0, "VmRSS")
            print(f"first decision after {seconds:.1f} s and {cpu:.0f} CPU s", flush=True)
            latencies: list[float] = []
            for number, change in enumerate(_admissions(history)[:EVENTS], start=ROOM + 1):
                begun = time.monotonic()
                await finish_job(api, change.key[0], change.key[1].removesuffix("-job"))
                await _admitted(history, number)
                latencies.append((_admissions(history)[-1].at - begun) * 1000)
    cuts = statistics.quantiles(latencies, n=100)
    label = f"{count // 1000}k"
    return [
        Figure(f"start_to_first_decision_seconds_{label}", seconds, "s", baseline=bare),
        Figure(f"start_cpu_seconds_{label}", cpu, "s"),
        Figure(f"resident_mib_{label}", resident / _MIB, "MiB"),
        Figure(f"finish_to_admission_p50_ms_{label}", cuts[49], "ms"),
        Figure(f"finish_to_admission_p99_ms_{label}", cuts[98], "ms"),
    ]


def _admissions(history: History) -> list[Change]:
    """Return the first change of each binding that shows it admitted."""
    first: dict[Key, Change] = {}
    for change in history.changes:
        if _admits(change):
            first.setdefault(change.key, change)
    return list(first.values())


async def _admitted(history: History, count: int) -> None:
    """Wait until *count* workloads were admitted."""
    what = f"{count} admissions"
    await history.until(lambda seen: len(_admissions(seen)) >= count, what, seconds=TIMEOUT_SECONDS)


async def _fill(plane: ControlPlane, api: Api, count: int) -> None:
    """Create *count* more pending workloads in a separate namespace."""
    print(f"storing {count} jobs and their bindings …", flush=True)
    await fill(plane, api, Batch(f"waiting-{count}", count, QUEUES))


async def _widen(api: Api, cpus: int) -> None:
    """Set the cluster's capacity to *cpus*."""
    await withdraw_cluster(api)
    await offer_cluster(api, cpus)


@asynccontextmanager
async def _started(plane: ControlPlane) -> AsyncIterator[tuple[Stack, History, float]]:
    """Start the controller; yield it, the changes since then, and the seconds until its first admission."""
    stack = Stack(plane, webhook=False, karmada=False, controller=False)
    async with followed(plane.etcd.url, plane.prefix, since=await present(plane.etcd.url)) as history:
        begun = time.monotonic()
        await asyncio.to_thread(stack.controller.begin)
        try:
            await history.until(
                lambda seen: any(map(_admits, seen.changes)), "the first admission", seconds=TIMEOUT_SECONDS
            )
            yield stack, history, next(change.at for change in history.changes if _admits(change)) - begun
        finally:
            await asyncio.to_thread(stack.stop)


async def _start(plane: ControlPlane) -> Start:
    """Start the controller, wait for its first admissions, measure its memory, and stop it."""
    async with _started(plane) as (stack, _, seconds):
        await asyncio.sleep(2)
        resident = process_bytes(stack.controller.pid or 0, "VmRSS")
        await asyncio.sleep(SETTLE_SECONDS)
        idle_cpu = await cpu_share(stack, IDLE_SECONDS)
    shown = f"{resident / _MIB:.0f} MiB resident, idle at {idle_cpu:.3f} CPU s/s"
    print(f"first decision after {seconds:.1f} s, {shown}", flush=True)
    return Start(seconds, resident, idle_cpu)


def _admits(change: Change) -> bool:
    return change.kind == RESOURCE_BINDINGS.plural and change.after is not None and parse_binding(change.after).admitted


async def _bare_list(plane: ControlPlane) -> float:
    """Return the time to list all jobs and bindings without processing them."""
    async with Api.connect(plane.kubeconfig("volcano-global-controller")) as api:
        begun = time.monotonic()
        await asyncio.gather(*(_read(api, kind) for kind in (JOBS, RESOURCE_BINDINGS)))
        return time.monotonic() - begun


async def _read(api: Api, kind: Resource) -> None:
    token = ""
    while True:
        try:
            page = await api.list_page(kind.path, limit=500, token=token)
        except ServerError:
            await asyncio.sleep(0.5)
            continue
        token = page.metadata.continue_token
        if not token:
            return
