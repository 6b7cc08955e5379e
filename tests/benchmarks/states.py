"""Generates states of the engine: queues, full clusters, admitted and pending workloads."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from controller.engine.engine import Engine
from controller.engine.state.clusters import Cluster, ClusterName, Placement, Spread
from controller.engine.state.hierarchy import ROOT, Queue, QueueName
from controller.engine.state.workloads import (
    VOLCANO_JOB,
    Admission,
    ClusterCharge,
    SchedulingRequirements,
    Workload,
    WorkloadState,
    WorkloadUid,
)

GIB = 2**30
NOW = 1_000_000_000
ONE = Placement(spread=(Spread("cluster", 1, 1),))


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a state with twenty scheduling requirements; a tenth as many workloads are admitted as pending."""

    waiting: int
    fans: tuple[int, ...]
    """Number of children of each queue, from the root down."""
    clusters: int = 100
    further_resources: int = 0
    """How many resources there are in addition to cpu, memory, nvidia.com/gpu and pods."""

    @property
    def admitted(self) -> int:
        return self.waiting // 10


def shapes(further_resources: int = 0) -> list[SchedulingRequirements]:
    """Return twenty scheduling requirements, gangs among them."""
    requirements = []
    for number in range(20):
        pods = 1 + number % 4
        demand = {
            "cpu": 1000 * (1 + number % 7) * pods,
            "memory": GIB * (2 + number % 5) * pods,
            "nvidia.com/gpu": 1000 * (number % 3) * pods,
            "pods": 1000 * pods,
            **{f"example.com/r{index}": 1000 * ((number + index) % 5) * pods for index in range(further_resources)},
        }
        requirements.append(SchedulingRequirements(demand, demand, ONE))
    return requirements


def queues(size: Size) -> Iterator[Queue]:
    """Yield the queue hierarchy, parents first."""
    above = [ROOT]
    for fan in size.fans:
        level = []
        for parent in above:
            for number in range(fan):
                name = QueueName(f"q{number}" if parent == ROOT else f"{parent}-{number}")
                level.append(name)
                yield Queue(name, parent=parent, weight=1 + number % 3)
        above = level


def leaves(size: Size) -> list[QueueName]:
    """Return the names of the queues without children."""
    return [queue.name for queue in queues(size) if queue.name.count("-") == len(size.fans) - 1]


def workloads(size: Size) -> Iterator[Workload]:
    """Yield the admitted workloads, then the pending ones."""
    kinds, names = shapes(size.further_resources), leaves(size)
    for number in range(size.admitted + size.waiting):
        shape = kinds[number % len(kinds)]
        is_admitted = number < size.admitted
        on = ClusterCharge(ClusterName(f"m{number % size.clusters}"), shape.requests)
        yield Workload(
            uid=WorkloadUid(f"{number:08d}-aaaa-bbbb-cccc-000000000000"),
            namespace=sys.intern(f"team-{number % 50}"),  # as the cache does
            name=f"train-{number}",
            kind="Job",
            queue=names[(number * 7 + number // len(names)) % len(names)],
            requirements=shape,
            priority=100 * (number % 3),
            created_at=NOW - 1000 * (size.waiting - number),
            state=WorkloadState.ADMITTED if is_admitted else WorkloadState.PENDING,
            admission=Admission(shape.requests, (on,), reported=True) if is_admitted else None,
        )


def full_clusters(size: Size, admitted: list[Workload]) -> list[Cluster]:
    """Return clusters that the admitted workloads fill."""
    held: dict[ClusterName, dict[str, int]] = {}
    for workload in admitted:
        for booking in workload.admission.cluster_charges if workload.admission else ():
            sums = held.setdefault(booking.cluster, {})
            for name, amount in booking.charge.items():
                sums[name] = sums.get(name, 0) + amount
    clusters = []
    for number in range(size.clusters):
        name = ClusterName(f"m{number}")
        full = {"cpu": 0, "memory": 0, "nvidia.com/gpu": 0, **held.get(name, {})}
        clusters.append(
            Cluster(name, enablements=frozenset({VOLCANO_JOB}), allocatable={**full, "pods": 10**9}, used=full)
        )
    return clusters


def build(size: Size) -> tuple[Engine, list[Workload]]:
    """Return a state with all objects, and its admitted workloads."""
    engine, admitted = Engine(), list[Workload]()
    for queue in queues(size):
        engine.queue_changed(queue)
    for workload in workloads(size):
        engine.workload_changed(workload, NOW)
        if workload.state is WorkloadState.ADMITTED:
            admitted.append(workload)
    for cluster in full_clusters(size, admitted):
        engine.cluster_changed(cluster, NOW)
    return engine, admitted
