"""Measures the engine alone, with 1,000 to 100,000 pending workloads: the first plan, and a plan per event.

The state: 20 scheduling requirements, a tenth as many admitted as pending workloads, 1,000 leaf queues in
three levels, 100 full clusters, three resources. Times are CPU seconds of this process.
"""

import gc
import statistics
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, replace

from controller.engine.engine import Engine
from controller.engine.state.clusters import Cluster, ClusterName, Placement, Spread
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import (
    VOLCANO_JOB,
    Admission,
    ClusterCharge,
    SchedulingRequirements,
    Workload,
    WorkloadState,
    WorkloadUid,
)
from tests.benchmarks.figures import Figure

GIB = 2**30
CLUSTERS = 100
EVENTS = 300
NOW = 1_000_000_000
ONE = Placement(spread=(Spread("cluster", 1, 1),))


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a state."""

    waiting: int
    fan: int
    """Number of children of each queue in the three levels."""

    @property
    def admitted(self) -> int:
        return self.waiting // 10


SIZES = (Size(1_000, 5), Size(10_000, 10), Size(100_000, 10))


def shapes() -> list[SchedulingRequirements]:
    """Return twenty scheduling requirements, gangs among them."""
    found = []
    for number in range(20):
        pods = 1 + number % 4
        demand = {
            "cpu": 1000 * (1 + number % 7) * pods,
            "memory": GIB * (2 + number % 5) * pods,
            "nvidia.com/gpu": 1000 * (number % 3) * pods,
            "pods": 1000 * pods,
        }
        found.append(SchedulingRequirements(demand, demand, ONE))
    return found


def queues(fan: int) -> Iterator[Queue]:
    """Yield a queue hierarchy of three levels."""
    for top in range(fan):
        yield Queue(QueueName(f"t{top}"), weight=1 + top % 3)
        for mid in range(fan):
            yield Queue(QueueName(f"t{top}-m{mid}"), parent=QueueName(f"t{top}"), weight=1 + mid % 3)
            for leaf in range(fan):
                name = QueueName(f"t{top}-m{mid}-l{leaf}")
                yield Queue(name, parent=QueueName(f"t{top}-m{mid}"), weight=1 + leaf % 3)


def workloads(size: Size) -> Iterator[Workload]:
    """Yield the admitted workloads, then the pending ones."""
    kinds = shapes()
    leaves = [each.name for each in queues(size.fan) if each.name.count("-") == 2]
    for number in range(size.admitted + size.waiting):
        shape = kinds[number % len(kinds)]
        is_admitted = number < size.admitted
        on = ClusterCharge(ClusterName(f"m{number % CLUSTERS}"), shape.requests)
        yield Workload(
            uid=WorkloadUid(f"{number:08d}-aaaa-bbbb-cccc-000000000000"),
            namespace=f"team-{number % 50}",
            name=f"train-{number}",
            kind="Job",
            queue=leaves[(number * 7 + number // len(leaves)) % len(leaves)],
            requirements=shape,
            priority=100 * (number % 3),
            created_at=NOW - 1000 * (size.waiting - number),
            state=WorkloadState.ADMITTED if is_admitted else WorkloadState.PENDING,
            admission=Admission(shape.requests, (on,), reported=True) if is_admitted else None,
        )


def clusters(admitted: list[Workload]) -> list[Cluster]:
    """Return clusters that the admitted workloads fill."""
    held: dict[ClusterName, dict[str, int]] = {}
    for workload in admitted:
        for booking in workload.admission.cluster_charges if workload.admission else ():
            sums = held.setdefault(booking.cluster, {})
            for name, amount in booking.charge.items():
                sums[name] = sums.get(name, 0) + amount
    found = []
    for number in range(CLUSTERS):
        name = ClusterName(f"m{number}")
        full = {"cpu": 0, "memory": 0, "nvidia.com/gpu": 0, **held.get(name, {})}
        found.append(
            Cluster(name, enablements=frozenset({VOLCANO_JOB}), allocatable={**full, "pods": 10**9}, used=full)
        )
    return found


def build(size: Size) -> tuple[Engine, list[Workload]]:
    """Return a state with all objects, and its admitted workloads."""
    state = Engine()
    everyone = list(workloads(size))
    admitted = [each for each in everyone if each.state is WorkloadState.ADMITTED]
    for queue in queues(size.fan):
        state.queue_changed(queue)
    for workload in everyone:
        state.workload_changed(workload, NOW)
    for cluster in clusters(admitted):
        state.cluster_changed(cluster, NOW)
    return state, admitted


def bytes_per_waiting(size: Size) -> float:
    """Return the memory of a pending workload, including indexes and its own object."""
    few = replace(size, waiting=size.waiting // 10)
    gc.collect()
    tracemalloc.start()
    small, _ = build(few)
    small.plan(NOW)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    large, _ = build(replace(size))
    large.plan(NOW)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    more = (size.waiting + size.admitted) - (few.waiting + few.admitted)
    return (after - 2 * before) / more if after > 2 * before else (after - before) / (size.waiting + size.admitted)


def first_plan(state: Engine) -> float:
    """Return the CPU seconds of the first plan."""
    begun = time.process_time()
    state.plan(NOW)
    return time.process_time() - begun


def events(state: Engine, admitted: list[Workload]) -> list[float]:
    """Let workloads finish, arrive or leave one by one; return the CPU milliseconds from each event to the plan."""
    found = []
    kinds = shapes()
    for number in range(EVENTS):
        begun = time.process_time()
        if number % 3 == 0:
            done = admitted[number % len(admitted)]
            state.workload_changed(
                replace(state.workloads[done.uid], state=WorkloadState.FINISHED, admission=None), NOW
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
            state.workload_changed(fresh, NOW)
        else:
            state.workload_removed(WorkloadUid(f"new-{number - 1}"), NOW)
        state.plan(NOW + number)
        found.append((time.process_time() - begun) * 1000)
    return found


def idle(state: Engine) -> float:
    """Return the CPU seconds of a thousand plans without changes, after all reasons are published."""
    while state.cycle.reason_updates.is_behind:
        state.plan(NOW + EVENTS)
    begun = time.process_time()
    for _ in range(1000):
        state.plan(NOW + EVENTS)
    return time.process_time() - begun


def measure(*, quick: bool) -> list[Figure]:
    """Run the benchmark and return its figures; those of the largest state have stable names."""
    figures = []
    for size in SIZES[: 1 if quick else None]:
        label = f"{size.waiting // 1000}k"
        state, admitted = build(size)
        gc.collect()
        first = first_plan(state)
        times = events(state, admitted)
        cuts = statistics.quantiles(times, n=100)
        print(f"{label}: first plan {first:.2f} s, event p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms", flush=True)
        figures += [
            Figure(f"plan_first_cpu_seconds_{label}", first, "s", goal="<= 1.0"),
            Figure(f"plan_event_p50_ms_{label}", cuts[49], "ms"),
            Figure(f"plan_event_p99_ms_{label}", cuts[98], "ms", goal="<= 5"),
            Figure(f"idle_cpu_seconds_{label}", idle(state), "s per 1,000 looks", goal="none"),
        ]
        del state, admitted
    size = SIZES[0 if quick else -1]
    figures.append(Figure("bytes_per_waiting", bytes_per_waiting(size), "bytes", goal="<= 500"))
    return figures
