"""Generates a load like that of the Philly cluster: bursts of jobs from few tenants with daily and weekly cycles."""

from collections.abc import Iterator
from heapq import merge
from itertools import count, islice

from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.resources import CPU, MEMORY, MILLI
from tests.traces.load import Job, Load, LoadSize, Task, Tasks, clusters_for, resource_amounts
from tests.traces.measurements import (
    SECOND,
    Philly,
    PhillyTenant,
    RandomStream,
    load_measurements,
    milliseconds,
    quantile,
)

GPU = "nvidia.com/gpu"
_GIB = 1 << 30
NODE = {GPU: 8 * MILLI, CPU: 96 * MILLI, MEMORY: 384 * _GIB}
"""The most frequent node of Alibaba's trace, because the Philly data has GPUs only."""
_PER_GPU = {GPU: MILLI, CPU: 6 * MILLI, MEMORY: 32 * _GIB}
_GPUS_OF_A_NODE = 8
_HOUR = 3600 * SECOND
_MEAN_GAP_IN_BURST = 20
"""Mean seconds between jobs of a burst; in the measurements, a gap of more than a minute separates bursts."""


def philly_load(size: LoadSize) -> Load:
    """Return a load of the first *size.jobs* jobs after midnight on Monday.

    Each queue is a virtual cluster, the largest first, weighted by its GPU time.
    """
    philly = load_measurements().philly
    tenants = [philly.tenants[index % len(philly.tenants)] for index in range(size.queues)]
    names = [_name(tenant, index // len(philly.tenants)) for index, tenant in enumerate(tenants)]
    streams = (_jobs(tenant, name, philly, size.seed) for tenant, name in zip(tenants, names, strict=True))
    jobs = tuple(islice(merge(*streams, key=lambda job: (job.at, job.queue)), size.jobs))
    queues = tuple(
        Queue(name, weight=max(round(tenant.gpu_time_share * 100), 1))
        for tenant, name in zip(tenants, names, strict=True)
    )
    return Load(queues, clusters_for(jobs, NODE, size), jobs)


def gpu_tasks(gpus: int) -> Tasks:
    """Return the tasks of a job with *gpus* GPUs: equal pods with at most the GPUs of a node."""
    pod_gpus = next(count for count in range(min(gpus, _GPUS_OF_A_NODE), 0, -1) if gpus % count == 0)
    return (
        Task("worker", gpus // pod_gpus, tuple((name, amount * pod_gpus) for name, amount in sorted(_PER_GPU.items()))),
    )


def cpu_tasks() -> Tasks:
    """Return the tasks of a job without GPUs."""
    return (Task("main", 1, resource_amounts(cpu=4 * MILLI, memory=16 * _GIB)),)


def _name(tenant: PhillyTenant, again: int) -> QueueName:
    return QueueName(f"vc-{tenant.name}-{again + 1}" if again else f"vc-{tenant.name}")


def _jobs(tenant: PhillyTenant, name: QueueName, philly: Philly, seed: int) -> Iterator[Job]:
    """Yield an infinite sequence of jobs of one tenant."""
    random = RandomStream(seed, "philly", name)
    for number, at in zip(count(1), _arrivals(tenant, philly, random), strict=False):
        gpus = int(random.choose(tenant.gpus))
        runtime = milliseconds(quantile(random.uniform(), load_measurements().probabilities, tenant.durations))
        yield Job(name, f"job-{number}", name, gpu_tasks(gpus), at, runtime)


def _arrivals(tenant: PhillyTenant, philly: Philly, random: RandomStream) -> Iterator[int]:
    """Yield the submission times of one tenant's jobs: bursts that are more frequent in busy hours."""
    now = 0
    while True:
        hour = now // _HOUR
        busy = philly.hour_of_day[hour % 24] * philly.weekday[hour // 24 % 7]
        now += random.gap(tenant.mean_gap / busy)
        for _ in range(random.burst(tenant.mean_burst)):
            yield now
            now += random.gap(_MEAN_GAP_IN_BURST)
