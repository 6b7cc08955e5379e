"""A load of Helios' shape: half of the jobs without GPUs and short, the others of all sizes, run times long-tailed.

Of Helios the middles are known and no tenants: sizes are powers of two, fewer
by a constant factor each, run times log-normal, and the queues' parts fall
off as 1/rank.
"""

from collections.abc import Iterator
from functools import cache

from controller.engine.queues import Queue, QueueName
from controller.simulator.generators.dice import Dice, milliseconds
from controller.simulator.generators.load import Job, Load
from controller.simulator.generators.measured import Site, measured
from controller.simulator.generators.philly import NODE, cpu_tasks, gpu_tasks
from controller.simulator.generators.size import Size, members

_SIZES = tuple(2**power for power in range(8))
"""Larger ones are too rare to matter, and would need clusters of their own."""
_MEAN_GAP = 30
"""Seconds from one job to the next; the clusters are made as large as that asks for."""


def helios_load(size: Size) -> Load:
    """Return a load of *size.jobs* jobs, each as those of one of Helios' clusters are."""
    queues = tuple(Queue(name) for name in ranked_queues(size))
    jobs = tuple(_jobs(size))
    return Load(queues, members(jobs, NODE, size), jobs)


def ranked_queues(size: Size) -> dict[QueueName, float]:
    """Return the queues with their parts of all jobs: half as many for the second, a third for the third."""
    return {QueueName(f"team-{rank}"): 1 / rank for rank in range(1, size.queues + 1)}


def _jobs(size: Size) -> Iterator[Job]:
    sites = {site.name: site for site in measured().helios.clusters}
    frequencies = {name: float(site.gpu_jobs + site.cpu_jobs) for name, site in sites.items()}
    queues = {str(name): part for name, part in ranked_queues(size).items()}
    dice, now = Dice(size.seed, "helios"), 0
    for number in range(1, size.jobs + 1):
        queue = QueueName(dice.one_of(queues))
        yield _job(sites[dice.one_of(frequencies)], queue, number, at=now, dice=dice)
        now += dice.gap(_MEAN_GAP)


def _job(site: Site, queue: QueueName, number: int, *, at: int, dice: Dice) -> Job:
    name = f"{site.name}-{number}"
    if dice.part() * (site.gpu_jobs + site.cpu_jobs) < site.cpu_jobs:
        runtime = dice.skewed(mean=site.cpu_seconds.mean, median=site.cpu_seconds.median)
        return Job(queue, name, queue, cpu_tasks(), at, milliseconds(runtime))
    gpus = int(dice.one_of(_gpu_frequencies(site.mean_gpus)))
    runtime = dice.skewed(mean=site.gpu_seconds.mean, median=site.gpu_seconds.median)
    return Job(queue, name, queue, gpu_tasks(gpus), at, milliseconds(runtime))


@cache
def _gpu_frequencies(mean: float) -> dict[str, float]:
    """Return the frequencies of the sizes, each a constant factor of the one before, with this mean size."""
    low, high = 0.0, 1.0
    for _ in range(50):
        factor = (low + high) / 2
        weights = [factor**power for power in range(len(_SIZES))]
        found = sum(weight * gpus for weight, gpus in zip(weights, _SIZES, strict=True)) / sum(weights)
        low, high = (factor, high) if found < mean else (low, factor)
    return {str(gpus): low**power for power, gpus in enumerate(_SIZES)}
