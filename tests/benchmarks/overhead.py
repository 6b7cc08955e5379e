"""Measures what data sources and the web console add to admissions that do not use them.

Rounds with and without the feature alternate on one control plane, and their ratio is the median over the pairs.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

import aiohttp
import msgspec

from controller.api.keys import CLUSTERS, DATA_SOURCE_CLAIMS, DATA_SOURCES, JOBS
from controller.kube.client import Api
from localup.controlplane import ControlPlane
from localup.processes import ProcessOptions
from localup.stack import Stack
from tests.benchmarks.admission import Pace, admit_batch, ground, process_seconds, running
from tests.benchmarks.figures import Figure
from tests.benchmarks.seed import (
    CLUSTER,
    Batch,
    create,
    in_flight,
    offer_cluster,
    pause,
    seed_queues,
    withdraw_cluster,
)
from tests.benchmarks.store_seed import fill

GOAL_RATIO = 1.1
CLAIMS = 100
DATA_SETS = 10
STREAMS = 200
#: Of one core, without the update that the console makes for any number of pages.
GOAL_STREAMS_PERCENT = 10
#: The cluster changes once a second, so that each update of the pages, every two seconds, changes them.
CHANGE_SECONDS = 1.0
STREAM_PAIRS, STREAM_SECONDS = 3, 20.0
_CONSOLE_FLAGS: Final = ("--max-streams-per-user", str(2 * STREAMS), "--requests-per-second", "1000")

Round = Callable[[], Awaitable[Pace]]


def measure_data(*, quick: bool) -> list[Figure]:
    """Compare a controller with data sources, and claims for other workloads, with one without them."""
    with ground() as plane:
        return asyncio.run(_measure_data(plane, *_sizes(quick=quick)))


def measure_console(*, quick: bool) -> list[Figure]:
    """Measure the console's open streams, and compare admission with and without them."""
    with ground() as plane:
        return asyncio.run(_measure_console(plane, *_sizes(quick=quick)))


def _sizes(*, quick: bool) -> tuple[int, int]:
    """Return workloads in a round, and pairs of rounds."""
    return (300, 1) if quick else (1_000, 9)


@asynccontextmanager
async def _seeded(plane: ControlPlane, count: int) -> AsyncIterator[tuple[Api, Batch]]:
    """Store *count* pending workloads in 100 queues."""
    batch = Batch("pending", count, 100)
    async with Api.connect(plane.kubeconfig("admin")) as api:
        await seed_queues(api, batch.queues)
        await fill(plane, api, batch)
        yield api, batch


async def _alternate(rounds: Mapping[str, Round], pairs: int) -> dict[str, list[Pace]]:
    """Return the paces of *pairs* rounds of each kind; every second pair is in reverse order."""
    paces: dict[str, list[Pace]] = {name: [] for name in rounds}
    for number in range(pairs):
        for name in rounds if number % 2 == 0 else reversed(list(rounds)):
            pace = await rounds[name]()
            paces[name].append(pace)
            print(f"pair {number + 1}: {name} {pace.rate:.0f}/s {pace.cpu_microseconds:.0f} us", flush=True)
    return paces


def _compared(label: str, paces: Sequence[Pace], without: Sequence[Pace], *, goal: str | None) -> list[Figure]:
    """Return the medians and their ratios."""
    cpu = [pace.cpu_microseconds for pace in paces]
    bare = [pace.cpu_microseconds for pace in without]
    ratios = sorted(ours / other for ours, other in zip(cpu, bare, strict=True))
    rates = statistics.median(ours.rate / other.rate for ours, other in zip(paces, without, strict=True))
    median = statistics.median
    return [
        Figure(f"cpu_microseconds_per_admission_{label}", median(cpu), "us", baseline=median(bare)),
        Figure(f"cpu_ratio_{label}", median(ratios), "", goal=goal),
        Figure(f"cpu_ratio_{label}_least", ratios[0], ""),
        Figure(f"cpu_ratio_{label}_most", ratios[-1], ""),
        Figure(f"admission_ratio_{label}", rates, ""),
    ]


# -- data sources ------------------------------------------------------------------


async def _measure_data(plane: ControlPlane, count: int, pairs: int) -> list[Figure]:
    async with _seeded(plane, count) as (api, batch):
        await _claim_data(api)

        async def one(enabled: str) -> Pace:
            flags = ProcessOptions(flags=("--data-sources", enabled))
            async with running(Stack(plane, webhook=False, karmada=False, options={"controller": flags})) as stack:
                if enabled == "true":
                    await _claims_bound(api)
                pace = await admit_batch(stack, api, batch)
            await withdraw_cluster(api)
            await pause(api, batch)
            return pace

        # The first round binds the claims.
        await one("true")
        paces = await _alternate({"with data sources": partial(one, "true"), "without": partial(one, "false")}, pairs)
    return _compared("with_data_sources", paces["with data sources"], paces["without"], goal=f"<= {GOAL_RATIO}")


async def _claim_data(api: Api) -> None:
    """Create data sources, and claims for workloads that do not exist."""
    namespace = "claims"
    await create(api, "/api/v1/namespaces", {"metadata": {"name": namespace}})
    for number in range(DATA_SETS):
        spec = {"system": "lake", "type": "table", "name": f"t{number}", "locality": {"clusterNames": [CLUSTER]}}
        head = {"apiVersion": DATA_SOURCES.api_version, "kind": DATA_SOURCES.kind}
        await create(api, DATA_SOURCES.path, {**head, "metadata": {"name": f"lake-t{number}"}, "spec": spec})

    async def claim(number: int) -> None:
        workload = {"apiVersion": JOBS.api_version, "kind": "Job", "name": f"other-{number}"}
        name = f"t{number % DATA_SETS}"
        spec = {"system": "lake", "dataSourceType": "table", "dataSourceName": name, "workload": workload}
        head = {"apiVersion": DATA_SOURCE_CLAIMS.api_version, "kind": DATA_SOURCE_CLAIMS.kind}
        path = DATA_SOURCE_CLAIMS.item_path(namespace, "").rstrip("/")
        await create(api, path, {**head, "metadata": {"name": f"claim-{number}"}, "spec": spec})

    await in_flight(range(CLAIMS), claim)


async def _claims_bound(api: Api) -> None:
    """Wait until all claims are bound."""

    async def bound() -> int:
        page: dict[str, Any] = msgspec.json.decode(await api.get(DATA_SOURCE_CLAIMS.path))
        return sum((claim.get("status") or {}).get("phase") == "Bound" for claim in page["items"])

    async with asyncio.timeout(60):
        while await bound() < CLAIMS:  # noqa: ASYNC110 -- the API server is asked
            await asyncio.sleep(0.2)


# -- the console -------------------------------------------------------------------


async def _measure_console(plane: ControlPlane, count: int, pairs: int) -> list[Figure]:
    options = {"console": ProcessOptions(flags=_CONSOLE_FLAGS)}
    spent: list[float] = []
    async with _seeded(plane, count) as (api, batch):

        async def one(streams: int) -> Pace:
            # The controller writes its decision log in both cases.
            async with running(Stack(plane, webhook=False, karmada=False, options=options)) as stack:
                if not streams:
                    await asyncio.to_thread(stack.console.stop)
                async with _streaming(stack, plane.token("admin"), streams):
                    before = process_seconds(stack.console.pid) if stack.console.pid else 0
                    pace = await admit_batch(stack, api, batch)
                    if stack.console.pid:
                        spent.append((process_seconds(stack.console.pid) - before) / count * 1e6)
            await withdraw_cluster(api)
            await pause(api, batch)
            return pace

        figures = await _streams(plane, api, options, pairs=min(pairs, STREAM_PAIRS))
        paces = await _alternate({"with streams": partial(one, STREAMS), "without": partial(one, 0)}, pairs)
    own = Figure("console_cpu_microseconds_per_admission", statistics.median(spent), "us")
    return [*figures, *_compared("with_console", paces["with streams"], paces["without"], goal=None), own]


async def _streams(plane: ControlPlane, api: Api, options: Mapping[str, ProcessOptions], *, pairs: int) -> list[Figure]:
    """Measure the console while pages change every two seconds, without and with open streams."""
    percents: dict[int, list[float]] = {0: [], STREAMS: []}
    updates: list[float] = []
    async with running(Stack(plane, webhook=False, karmada=False, controller=False, options=options)) as stack:
        await offer_cluster(api, 1)
        for _ in range(pairs):
            for streams, measured in percents.items():
                async with _streaming(stack, plane.token("admin"), streams) as received:
                    before, begun, sent = process_seconds(stack.console.pid or 0), time.monotonic(), sum(received)
                    await _change_cluster(api, begun + STREAM_SECONDS)
                    seconds = time.monotonic() - begun
                    measured.append((process_seconds(stack.console.pid or 0) - before) / seconds * 100)
                    if streams:
                        updates.append((sum(received) - sent) / streams / seconds)
            print(f"console: {percents[0][-1]:.1f} % of a core, with streams {percents[STREAMS][-1]:.1f} %", flush=True)
        await withdraw_cluster(api)
    alone, most = (statistics.median(measured) for measured in percents.values())
    more = statistics.median(ours - other for ours, other in zip(percents[STREAMS], percents[0], strict=True))
    return [
        Figure("console_percent_of_core_200_streams", most, "%", goal=f"<= {GOAL_STREAMS_PERCENT}", baseline=alone),
        Figure("console_percent_of_core_for_200_streams", more, "%"),
        Figure("console_updates_per_second_and_stream", statistics.median(updates), "1/s"),
    ]


async def _change_cluster(api: Api, end: float) -> None:
    """Change the cluster's capacity every second until *end*."""
    number = 0
    while time.monotonic() < end:
        number += 1
        status = {"resourceSummary": {"allocatable": {"cpu": str(number % 2), "memory": "1Gi", "pods": "1"}}}
        body = msgspec.json.encode({"status": status})
        await api.patch(f"{CLUSTERS.path}/{CLUSTER}/status", body, kind="merge")
        await asyncio.sleep(CHANGE_SECONDS)


@asynccontextmanager
async def _streaming(stack: Stack, token: str, count: int) -> AsyncIterator[list[int]]:
    """Hold *count* streams of the overview open, and yield the number of updates that each has received."""
    received = [0] * count
    url = f"{stack.console_url}events?path=/"

    async def read(number: int, answer: aiohttp.ClientResponse) -> None:
        # Each update is sent at once; it is not decompressed, as the client shares the cores.
        async for _ in answer.content.iter_any():
            received[number] += 1

    async with AsyncExitStack() as opened:
        connector = aiohttp.TCPConnector(limit=0)
        headers = {"Authorization": f"Bearer {token}"}
        session = await opened.enter_async_context(
            aiohttp.ClientSession(
                connector=connector, headers=headers, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
            )
        )
        tasks = []
        for number in range(count):
            answer = await opened.enter_async_context(session.get(url))
            answer.raise_for_status()
            tasks.append(asyncio.create_task(read(number, answer)))
        try:
            async with asyncio.timeout(60):
                while not all(received):  # noqa: ASYNC110 -- several tasks count
                    await asyncio.sleep(0.1)
            yield received
            if ended := sum(task.done() for task in tasks):
                raise RuntimeError(f"{ended} of {count} streams have ended")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
