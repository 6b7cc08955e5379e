"""Measures how the CPU time of a review grows with its bytes, for bodies that cost much for their size."""

import time
from collections.abc import Callable
from typing import Any

from controller.api import quantity
from tests.benchmarks.figures import Figure
from tests.webhook.fuzz import answer_to
from tests.webhook.large_reviews import ATTACKS, KIB, body_of
from webhook.validation import hyperjob, job_types

SIZE = 12 * KIB
TIMES = 16
#: Linear work takes 16 times as long, quadratic work 256 times; larger bodies find less of their data in CPU caches.
GOAL = 64


def measure(*, quick: bool) -> list[Figure]:
    """Return the largest growth of all kinds of bodies, and print each."""
    rounds = 1 if quick else 5
    job_types.MAX_TASKS = hyperjob.MAX_TASKS = 10**9
    growths = {}
    for attack in ATTACKS:
        path, make = attack.values
        growths[attack.id] = growth(str(path), make, rounds)
        print(f"{attack.id}: {TIMES} times the bytes take {growths[attack.id]:.1f} times the CPU time")
    return [Figure("review_cpu_growth_at_16_times_the_bytes", max(growths.values()), "", f"<= {GOAL}")]


def growth(path: str, make: Callable[[int], Any], rounds: int) -> float:
    """Return the CPU time for the large body as a multiple of the small body's."""
    return cpu_seconds(path, body_of(make, TIMES * SIZE), rounds) / cpu_seconds(path, body_of(make, SIZE), rounds)


def cpu_seconds(path: str, body: bytes, rounds: int) -> float:
    """Return the least CPU time of a review of *body*."""
    seconds = []
    for _ in range(rounds):
        quantity._amount.cache_clear()
        began = time.process_time()
        answer_to(path, body)
        seconds.append(time.process_time() - began)
    return min(seconds)
