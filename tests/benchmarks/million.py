"""Measures the engine with 1,000,000 pending workloads: the first plan, a plan per event, decisions, memory.

Then the controller process with as many generated objects on a streaming server, without an etcd.

The state: 10,000 queues on five levels, 1,000 full clusters, eight resources, 100,000 admitted workloads.
Takes several minutes and 2 GiB, so it is not part of the default run. Times are CPU seconds of this process.
"""

import asyncio
import gc
import os
import statistics
import time
from collections.abc import Iterable
from dataclasses import replace

from controller.engine.engine import Engine
from controller.engine.plan import Admit
from tests.benchmarks import million_controller
from tests.benchmarks.figures import Figure, process_bytes
from tests.benchmarks.plan import EVENTS, events, first_plan
from tests.benchmarks.states import GIB, NOW, Size, build

MILLION = Size(1_000_000, (10, 3, 4, 2, 40), clusters=1_000, further_resources=4)
SIZES = {
    1_000_000: MILLION,
    100_000: Size(100_000, (10, 3, 4, 2, 4), clusters=100, further_resources=4),
}
QUICK = Size(50_000, (5, 3, 2, 2, 8), clusters=50, further_resources=4)
DECISIONS = 50_000
"""For how many workloads capacity is added, to measure decisions per second."""
MOST = 1_000
"""Decisions of one plan, as many as the controller writes before it plans again."""


def measure(*, quick: bool, size: int = 1_000_000) -> list[Figure]:
    """Run the benchmark with *size* pending workloads and return its figures."""
    if size not in SIZES:
        raise SystemExit(f"--size {size}: choose {' or '.join(map(str, SIZES))} pending workloads")
    large = QUICK if quick else SIZES[size]
    label = "1m" if quick or size == max(SIZES) else f"{size // 1000}k"
    figures = _engine(large, label)
    gc.collect()
    served = replace(large, waiting=large.waiting // 10) if quick else large
    return figures + asyncio.run(million_controller.measure(served, label))


def _engine(size: Size, label: str) -> list[Figure]:
    gc.set_threshold(50_000, 50, 1000)
    begun = time.process_time()
    engine, admitted = build(size)
    print(f"{size.waiting:,} pending workloads created in {time.process_time() - begun:.0f} CPU s", flush=True)
    first = first_plan(engine)
    times = events(engine, admitted, size)
    cuts = statistics.quantiles(times, n=100)
    print(f"first plan {first:.1f} s, event p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms", flush=True)
    resident = process_bytes(os.getpid(), "VmRSS")
    return [
        Figure(f"plan_first_cpu_seconds_{label}", first, "s", goal="<= 15"),
        Figure(f"plan_event_p50_ms_{label}", cuts[49], "ms"),
        Figure(f"plan_event_p99_ms_{label}", cuts[98], "ms", goal="<= 10"),
        Figure(f"resident_gib_{label}", resident / GIB, "GiB", goal="<= 2"),
        Figure(
            f"decisions_per_cpu_second_{label}",
            _decisions_per_second(engine, min(DECISIONS, size.waiting // 2)),
            "/s",
            goal=">= 10000",
        ),
    ]


def _decisions_per_second(engine: Engine, count: int) -> float:
    """Add capacity for about *count* workloads and admit them; nothing is written. Return admissions per CPU second."""
    names = [cluster_state.name for cluster_state in engine.cluster_usage]
    for cluster_state in list(engine.cluster_usage):
        if cluster_state.cluster is not None and cluster_state.cluster.allocatable is not None:
            units = count // len(names)
            more = {
                name: amount + units * (30 * GIB if name == "memory" else 20_000)
                for name, amount in cluster_state.cluster.allocatable.items()
            }
            engine.cluster_changed(replace(cluster_state.cluster, allocatable=more), NOW + EVENTS)
    engine.plan(NOW + EVENTS, most=1)
    begun, decided = time.process_time(), 0
    while decided < count and (number := _admissions(engine.plan(NOW + EVENTS, most=MOST).decisions)):
        decided += number
    seconds = time.process_time() - begun
    print(f"{decided:,} admissions in {seconds:.1f} CPU s", flush=True)
    return decided / seconds


def _admissions(decisions: Iterable[object]) -> int:
    return sum(isinstance(decision, Admit) for decision in decisions)
