"""Measures the engine alone, with 1,000 to 100,000 pending workloads: the first plan, and a plan per event.

The state: 20 scheduling requirements, a tenth as many admitted as pending workloads, 1,000 leaf queues in
three levels, 100 full clusters, three resources. Times are CPU seconds of this process.
"""

import gc
import statistics
import time
import tracemalloc
from dataclasses import replace

from controller.engine.engine import Engine
from controller.engine.state.workloads import Workload, WorkloadState, WorkloadUid
from tests.benchmarks.figures import Figure
from tests.benchmarks.states import NOW, Size, build, shapes

EVENTS = 300

SIZES = (Size(1_000, (5, 5, 5)), Size(10_000, (10, 10, 10)), Size(100_000, (10, 10, 10)))


def bytes_per_waiting(size: Size) -> float:
    """Return the memory of a pending workload, including indexes and its own object."""
    few = replace(size, waiting=size.waiting // 10)
    gc.collect()
    tracemalloc.start()
    small, _ = build(few)
    publish_reasons(small)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    large, _ = build(replace(size))
    publish_reasons(large)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    more = (size.waiting + size.admitted) - (few.waiting + few.admitted)
    return (after - 2 * before) / more if after > 2 * before else (after - before) / (size.waiting + size.admitted)


def publish_reasons(engine: Engine) -> None:
    """Plan until the reasons of all pending workloads are published."""
    engine.plan(NOW + EVENTS)
    while engine.cycle.reason_updates.is_behind:
        engine.plan(NOW + EVENTS)


def first_plan(engine: Engine) -> float:
    """Return the CPU seconds of the first plan."""
    begun = time.process_time()
    engine.plan(NOW)
    return time.process_time() - begun


def events(engine: Engine, admitted: list[Workload], size: Size) -> list[float]:
    """Let workloads finish, arrive or leave one by one; return the CPU milliseconds from each event to the plan."""
    milliseconds = []
    kinds = shapes(size.further_resources)
    for number in range(EVENTS):
        begun = time.process_time()
        if number % 3 == 0:
            done = admitted[number % len(admitted)]
            engine.workload_changed(
                replace(engine.workloads[done.uid], state=WorkloadState.FINISHED, admission=None), NOW
            )
        elif number % 3 == 1:
            source = admitted[number % len(admitted)]
            fresh = replace(
                source,
                uid=WorkloadUid(f"new-{number}"),
                name=f"new-{number}",
                requirements=kinds[number % len(kinds)],
                state=WorkloadState.PENDING,
                admission=None,
            )
            engine.workload_changed(fresh, NOW)
        else:
            engine.workload_removed(WorkloadUid(f"new-{number - 1}"), NOW)
        engine.plan(NOW + number)
        milliseconds.append((time.process_time() - begun) * 1000)
    return milliseconds


def idle(engine: Engine) -> float:
    """Return the CPU seconds of a thousand plans without changes, after all reasons are published."""
    publish_reasons(engine)
    begun = time.process_time()
    for _ in range(1000):
        engine.plan(NOW + EVENTS)
    return time.process_time() - begun


def measure(*, quick: bool) -> list[Figure]:
    """Run the benchmark and return its figures; those of the largest state have stable names."""
    figures = []
    # As the controller does: collections of all objects in the middle of a plan would be measured otherwise.
    gc.set_threshold(50_000, 50, 1000)
    for size in SIZES[: 1 if quick else None]:
        label = f"{size.waiting // 1000}k"
        engine, admitted = build(size)
        gc.collect()
        first = first_plan(engine)
        times = events(engine, admitted, size)
        cuts = statistics.quantiles(times, n=100)
        print(f"{label}: first plan {first:.2f} s, event p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms", flush=True)
        figures += [
            Figure(f"plan_first_cpu_seconds_{label}", first, "s", goal="<= 1.0"),
            Figure(f"plan_event_p50_ms_{label}", cuts[49], "ms"),
            Figure(f"plan_event_p99_ms_{label}", cuts[98], "ms", goal="<= 5"),
            Figure(f"idle_cpu_seconds_{label}", idle(engine), "s per 1,000 looks", goal="none"),
        ]
        del engine, admitted
    size = SIZES[0 if quick else -1]
    figures.append(Figure("bytes_per_waiting", bytes_per_waiting(size), "bytes", goal="<= 500"))
    return figures
