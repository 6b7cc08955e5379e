"""Generates a load like that of the Helios clusters: short CPU jobs, and GPU jobs with long-tailed run times.

Only means and medians of Helios are published. Sizes are powers of two with geometrically
decreasing frequency, run times are log-normal, and the job counts of queues decrease as 1/rank.
"""

from collections.abc import Iterator
from functools import cache

from controller.engine.state.hierarchy import Queue, QueueName
from tests.traces.load import Job, Load, LoadSize, clusters_for
from tests.traces.measurements import HeliosCluster, RandomStream, load_measurements, milliseconds
from tests.traces.philly import NODE, cpu_tasks, gpu_tasks

_SIZES = tuple(2**power for power in range(8))
"""GPUs of a job. Larger jobs are rare and would need larger clusters."""
_MEAN_GAP = 30
"""Mean seconds between jobs; the clusters are sized accordingly."""


def helios_load(size: LoadSize) -> Load:
    """Return a load of *size.jobs* jobs, each drawn from one of the Helios clusters."""
    queues = tuple(Queue(name) for name in ranked_queues(size))
    jobs = tuple(_jobs(size))
    return Load(queues, clusters_for(jobs, NODE, size), jobs)


def ranked_queues(size: LoadSize) -> dict[QueueName, float]:
    """Return the queues with their relative job counts, which are 1/rank."""
    return {QueueName(f"team-{rank}"): 1 / rank for rank in range(1, size.queues + 1)}


def _jobs(size: LoadSize) -> Iterator[Job]:
    sites = {site.name: site for site in load_measurements().helios.clusters}
    frequencies = {name: float(site.gpu_jobs + site.cpu_jobs) for name, site in sites.items()}
    queues = {str(name): part for name, part in ranked_queues(size).items()}
    random, now = RandomStream(size.seed, "helios"), 0
    for number in range(1, size.jobs + 1):
        queue = QueueName(random.choose(queues))
        yield _job(sites[random.choose(frequencies)], queue, number, at=now, random=random)
        now += random.gap(_MEAN_GAP)


def _job(site: HeliosCluster, queue: QueueName, number: int, *, at: int, random: RandomStream) -> Job:
    name = f"{site.name}-{number}"
    if random.uniform() * (site.gpu_jobs + site.cpu_jobs) < site.cpu_jobs:
        runtime = random.skewed(mean=site.cpu_seconds.mean, median=site.cpu_seconds.median)
        return Job(queue, name, queue, cpu_tasks(), at, milliseconds(runtime))
    gpus = int(random.choose(_gpu_frequencies(site.mean_gpus)))
    runtime = random.skewed(mean=site.gpu_seconds.mean, median=site.gpu_seconds.median)
    return Job(queue, name, queue, gpu_tasks(gpus), at, milliseconds(runtime))


@cache
def _gpu_frequencies(mean: float) -> dict[str, float]:
    """Return geometric frequencies of the sizes with the given mean size."""
    low, high = 0.0, 1.0
    for _ in range(50):
        factor = (low + high) / 2
        weights = [factor**power for power in range(len(_SIZES))]
        mean_size = sum(weight * gpus for weight, gpus in zip(weights, _SIZES, strict=True)) / sum(weights)
        low, high = (factor, high) if mean_size < mean else (low, factor)
    return {str(gpus): low**power for power, gpus in enumerate(_SIZES)}
