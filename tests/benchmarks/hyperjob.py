"""Measures splitting one HyperJob over a hundred clusters."""

import gc
import statistics
import time
from random import Random

from controller.controllers.hyperjob.split import split
from tests.benchmarks.figures import Figure
from tests.controllers.hyperjob.objects import auto, capacity, cluster, task

_CLUSTERS = 100
_REPLICAS = 2048


def measure(*, quick: bool = False) -> list[Figure]:
    """Split a job with a master and 2,048 workers, after a warm-up."""
    dice = Random(1)
    sites = [cluster(f"member{number:03}", dice.randint(8, 96)) for number in range(_CLUSTERS)]
    around = capacity(*sites)
    hyperjob = auto(task("master", 1), task("worker", _REPLICAS), job={"clusterNames": ["member007", "member042"]})
    assert split(hyperjob, around).fits
    times = []
    gc.collect()
    for _ in range(20 if quick else 200):
        began = time.perf_counter()
        split(hyperjob, around)
        times.append((time.perf_counter() - began) * 1000)
    return [Figure("hyperjob_split_ms", statistics.median(times), "ms", goal="< 50")]
