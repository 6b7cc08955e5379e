"""Random fleets with an estimator: every admitted gang has a placement, and few gangs are refused wrongly.

``make test`` checks some of the fleets; ``make test-long`` checks 2,000 and prints the rates that
docs/concepts/placement.md names.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pytest

from controller.engine.engine import Engine
from controller.engine.plan import Admit
from controller.engine.policy import Policy
from controller.engine.state.estimates import Estimate, Query
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.resources import Resources, subtract
from controller.engine.state.workloads import Workload, WorkloadUid
from tests.engine.fleets import Fleet, fleet, has_place

FEW, MANY = 300, 2_000

Count = Callable[[Query, Sequence[Resources]], int]


def one_by_one(query: Query, free: Sequence[Resources]) -> int:
    """Count equal pods, node by node."""
    asked = query.gang[0].requests
    return sum(max(min(node.get(name, 0) // amount for name, amount in asked if amount > 0), 0) for node in free)


def exactly(query: Query, free: Sequence[Resources]) -> int:
    """Count whole gangs by trying all placements, two at most."""
    if len(query.gang) == 1:
        return one_by_one(query, free)
    sets = 0
    while sets < 2 and has_place([(each.amounts, each.minimum * (sets + 1)) for each in query.gang], free):
        sets += 1
    return sets


def by_first_fit(query: Query, free: Sequence[Resources]) -> int:
    """Count whole gangs as Karmada does: component by component, by first fit."""
    if len(query.gang) == 1:
        return one_by_one(query, free)
    left, sets = [dict(node) for node in free], 0
    while sets < 2 and all(_placed(each.amounts, each.minimum, left) for each in query.gang):
        sets += 1
    return sets


def _placed(request: Resources, count: int, left: list[dict[str, int]]) -> bool:
    for node in left:
        fits = min(node.get(name, 0) // amount for name, amount in request.items() if amount > 0)
        taken = max(min(fits, count), 0)
        count -= taken
        for name, amount in request.items():
            node[name] = node.get(name, 0) - taken * amount
    return count == 0


def free(found: Fleet) -> list[Resources]:
    return [subtract(node.allocatable, node.used) for node in found.nodes]


def admitted(found: Fleet, count: Count, *, copies: int = 1) -> int:
    """Return how many of *copies* equal gangs are admitted while the estimator observes none of them."""
    state = Engine(Policy(node_estimates=True))
    state.queue_changed(Queue(QueueName("a")))
    state.cluster_changed(found.cluster, 0)
    for number in range(copies):
        uid = WorkloadUid(f"u{number}")
        state.workload_changed(Workload(uid, "ml", f"j{number}", "Job", QueueName("a"), found.shape), 0)
    decisions: list[object] = []
    for now in range(1 + copies):
        plan = state.plan(now)
        decisions += plan.decisions
        for query in plan.queries:
            state.cluster_estimated(Estimate(query, count(query, free(found))), now)
    return sum(isinstance(each, Admit) for each in decisions)


def rates(seeds: Iterable[int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        found = fleet(seed)
        fits = found.fits_now()
        for means, count in (("exact", exactly), ("first fit", by_first_fit)):
            is_admitted = admitted(found, count) == 1
            counts[f"{means}: admitted"] += is_admitted
            counts[f"{means}: in vain"] += is_admitted and not fits
            counts[f"{means}: refused"] += fits and not is_admitted
        counts["fits"] += fits
    return counts


def report(counts: Counter[str]) -> None:
    for means in ("exact", "first fit"):
        vain = 100 * counts[f"{means}: in vain"] / counts[f"{means}: admitted"]
        refused = 100 * counts[f"{means}: refused"] / counts["fits"]
        said = f"{counts[f'{means}: admitted']} admitted, {vain:.1f} % in vain, {refused:.1f} % refused wrongly"
        print(f"{means}: {said}")  # noqa: T201 - the rates


def judge(seeds: Iterable[int]) -> None:
    counts = rates(seeds)
    report(counts)
    assert counts["fits"] > 0
    assert counts["exact: in vain"] == counts["first fit: in vain"] == 0
    assert counts["exact: refused"] * 100 <= counts["fits"]


def test_estimated_gangs_always_have_a_placement():
    judge(range(FEW))


@pytest.mark.long
def test_estimated_gangs_always_have_a_placement_on_2000_fleets():
    judge(range(MANY))


def test_gangs_admitted_with_unobserved_ones_fit_together():
    together = alone = 0
    for seed in range(FEW):
        found = fleet(seed)
        count = admitted(found, exactly, copies=3)
        assert has_place([(request, number * count) for request, number in found.gang], free(found)), f"fleet {seed}"
        together += count > 1
        alone += count == 1
    assert together > 10, "where there is room for several, several are admitted"
    assert alone > 10
