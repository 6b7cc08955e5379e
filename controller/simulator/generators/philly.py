"""A load of Philly's shape: bursts of training jobs from few tenants, by day and week, each with its own sizes."""

from collections.abc import Iterator
from heapq import merge
from itertools import count, islice

from controller.engine.queues import Queue, QueueName
from controller.engine.resources import CPU, MEMORY, MILLI
from controller.simulator.generators.distributions import SECOND, RandomStream, milliseconds, quantile
from controller.simulator.generators.load import Job, Load, Task, Tasks, resource_amounts
from controller.simulator.generators.load_size import LoadSize, clusters_for
from controller.simulator.generators.measurements import Philly, PhillyTenant, load_measurements

GPU = "nvidia.com/gpu"
_GIB = 1 << 30
NODE = {GPU: 8 * MILLI, CPU: 96 * MILLI, MEMORY: 384 * _GIB}
"""The most frequent node of Alibaba's trace; Philly tells of GPUs only."""
_PER_GPU = {GPU: MILLI, CPU: 6 * MILLI, MEMORY: 32 * _GIB}
_GPUS_OF_A_NODE = 8
_HOUR = 3600 * SECOND
_MEAN_GAP_IN_BURST = 20
"""Seconds from one job of a burst to the next, on the average; a minute is the most by which bursts were told apart."""


def philly_load(size: LoadSize) -> Load:
    """Return a load of the first *size.jobs* jobs that come from Monday, midnight on.

    Each queue is a virtual cluster, the largest first, with the weight of the
    GPU time that it took.
    """
    philly = load_measurements().philly
    tenants = [philly.tenants[place % len(philly.tenants)] for place in range(size.queues)]
    names = [_name(tenant, place // len(philly.tenants)) for place, tenant in enumerate(tenants)]
    streams = (_jobs(tenant, name, philly, size.seed) for tenant, name in zip(tenants, names, strict=True))
    jobs = tuple(islice(merge(*streams, key=lambda job: (job.at, job.queue)), size.jobs))
    queues = tuple(
        Queue(name, weight=max(round(tenant.gpu_time_share * 100), 1))
        for tenant, name in zip(tenants, names, strict=True)
    )
    return Load(queues, clusters_for(jobs, NODE, size), jobs)


def gpu_tasks(gpus: int) -> Tasks:
    """Return the tasks of a job of so many GPUs: one pod, or equal ones of up to a node each."""
    each = next(count for count in range(min(gpus, _GPUS_OF_A_NODE), 0, -1) if gpus % count == 0)
    return (Task("worker", gpus // each, tuple((name, amount * each) for name, amount in sorted(_PER_GPU.items()))),)


def cpu_tasks() -> Tasks:
    """Return the tasks of a job without GPUs."""
    return (Task("main", 1, resource_amounts(cpu=4 * MILLI, memory=16 * _GIB)),)


def _name(tenant: PhillyTenant, again: int) -> QueueName:
    return QueueName(f"vc-{tenant.name}-{again + 1}" if again else f"vc-{tenant.name}")


def _jobs(tenant: PhillyTenant, name: QueueName, philly: Philly, seed: int) -> Iterator[Job]:
    """Yield the jobs of one tenant without end."""
    random = RandomStream(seed, "philly", name)
    for number, at in zip(count(1), _arrivals(tenant, philly, random), strict=False):
        gpus = int(random.choose(tenant.gpus))
        runtime = milliseconds(quantile(random.uniform(), load_measurements().probabilities, tenant.durations))
        yield Job(name, f"job-{number}", name, gpu_tasks(gpus), at, runtime)


def _arrivals(tenant: PhillyTenant, philly: Philly, random: RandomStream) -> Iterator[int]:
    """Yield when the jobs of one tenant come: in bursts, more of them in busy hours."""
    now = 0
    while True:
        hour = now // _HOUR
        busy = philly.hour_of_day[hour % 24] * philly.weekday[hour // 24 % 7]
        now += random.gap(tenant.mean_gap / busy)
        for _ in range(random.burst(tenant.mean_burst)):
            yield now
            now += random.gap(_MEAN_GAP_IN_BURST)
