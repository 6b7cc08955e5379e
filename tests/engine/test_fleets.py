"""Random fleets: which gangs are admitted that do not fit the nodes, and which are refused though they fit.

``make test`` checks some of the fleets; ``make test-long`` checks 2,000 and prints the rates that
docs/concepts/placement.md names.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pytest

from controller.engine.engine import Engine
from controller.engine.plan import Admit
from controller.engine.policy import NodeShapes, Policy
from controller.engine.reasons import Reason
from controller.engine.state.estimates import Estimate, Query
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.resources import Resources
from controller.engine.state.workloads import WorkloadUid
from tests.engine.fleets import Fleet, fleet, has_place
from tests.engine.objects import workload

FEW, MANY = 300, 2_000
NEVER = {Reason.EXCEEDS_EVERY_CLUSTER, Reason.EXCEEDS_QUEUE_LIMIT}

Count = Callable[[Query, Sequence[Resources]], int]


def build(sample: Fleet, policy: Policy, *, copies: int = 1) -> Engine:
    engine = Engine(policy)
    engine.queue_changed(Queue(QueueName("q")))
    engine.cluster_changed(sample.cluster, 0)
    for number in range(copies):
        engine.workload_changed(workload(f"u{number}", sample.shape), 0)
    return engine


def verdict(sample: Fleet, *shapes: NodeShapes) -> Reason | None:
    """Return the pending reason of the gang, ``None`` if it is admitted."""
    engine = build(sample, Policy(node_shapes=shapes))
    engine.plan(0)
    refusal = engine.refusal(WorkloadUid("u0"))
    return None if refusal is None else refusal.reason


def admitted(sample: Fleet, count: Count, *, copies: int = 1) -> int:
    """Return how many of *copies* equal gangs are admitted while the estimator observes none of them."""
    engine, decisions = build(sample, Policy(node_estimates=True), copies=copies), list[object]()
    for now in range(1 + copies):
        plan = engine.plan(now)
        decisions += plan.decisions
        for query in plan.queries:
            engine.cluster_estimated(Estimate(query, count(query, sample.free)), now)
    return sum(isinstance(decision, Admit) for decision in decisions)


def one_by_one(query: Query, free: Sequence[Resources]) -> int:
    """Count equal pods, node by node."""
    asked = query.gang[0].requests
    return sum(max(min(node.get(name, 0) // amount for name, amount in asked if amount > 0), 0) for node in free)


def exactly(query: Query, free: Sequence[Resources]) -> int:
    """Count whole gangs by trying all placements, two at most."""
    if len(query.gang) == 1:
        return one_by_one(query, free)
    sets = 0
    while sets < 2 and has_place([(pod_set.amounts, pod_set.minimum * (sets + 1)) for pod_set in query.gang], free):
        sets += 1
    return sets


def by_first_fit(query: Query, free: Sequence[Resources]) -> int:
    """Count whole gangs as Karmada does: component by component, by first fit."""
    if len(query.gang) == 1:
        return one_by_one(query, free)
    left, sets = [dict(node) for node in free], 0
    while sets < 2 and all(_placed(pod_set.amounts, pod_set.minimum, left) for pod_set in query.gang):
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


def check_models_and_shapes(seeds: Iterable[int]) -> None:
    """Check that no gang that fits is refused, for good or now, with resource models and with node shapes."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        sample = fleet(seed)
        empty, now = sample.fits_empty(), sample.fits_now()
        for means, shapes in (("models", ()), ("node shapes", (sample.node_shapes,))):
            reason = verdict(sample, *shapes)
            assert not (empty and reason in NEVER), f"fleet {seed}: {reason} with {means}, but it fits while empty"
            assert not (now and reason is not None), f"fleet {seed}: {reason} with {means}, but it fits now"
            counts[f"{means}: admitted"] += reason is None
            counts[f"{means}: in vain"] += reason is None and not now
            counts[f"{means}: never fits"] += reason is None and not empty
    for means in ("models", "node shapes"):
        vain, never = (percent(counts, means, what) for what in ("in vain", "never fits"))
        said = f"{counts[f'{means}: admitted']} gangs admitted, {vain:.1f} % do not fit now, {never:.1f} % never fit"
        print(f"{means}: {said}")  # noqa: T201 - the rates
    assert counts["node shapes: never fits"] == 0
    assert counts["node shapes: in vain"] < counts["models: in vain"]


def check_estimates(seeds: Iterable[int]) -> None:
    """Check that every admitted gang has a placement, and that few gangs are refused wrongly."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        sample = fleet(seed)
        fits = sample.fits_now()
        for means, count in (("exact", exactly), ("first fit", by_first_fit)):
            is_admitted = admitted(sample, count) == 1
            counts[f"{means}: admitted"] += is_admitted
            counts[f"{means}: in vain"] += is_admitted and not fits
            counts[f"{means}: refused"] += fits and not is_admitted
        counts["fits"] += fits
    for means in ("exact", "first fit"):
        vain, refused = percent(counts, means, "in vain"), 100 * counts[f"{means}: refused"] / counts["fits"]
        said = f"{counts[f'{means}: admitted']} admitted, {vain:.1f} % in vain, {refused:.1f} % refused wrongly"
        print(f"{means}: {said}")  # noqa: T201 - the rates
    assert counts["exact: in vain"] == counts["first fit: in vain"] == 0
    assert counts["exact: refused"] * 100 <= counts["fits"]


def percent(counts: Counter[str], means: str, what: str) -> float:
    return 100 * counts[f"{means}: {what}"] / max(counts[f"{means}: admitted"], 1)


def test_gang_fitting_an_empty_fleet_never_exceeds_every_cluster():
    check_models_and_shapes(range(FEW))


def test_estimated_gangs_always_have_a_placement():
    check_estimates(range(FEW))


@pytest.mark.long
@pytest.mark.parametrize("check", [check_models_and_shapes, check_estimates])
def test_bounds_on_wrong_verdicts_hold_on_2000_fleets(check):
    check(range(MANY))


def test_gangs_admitted_with_unobserved_ones_fit_together():
    counts: Counter[int] = Counter()
    for seed in range(FEW):
        sample = fleet(seed)
        count = admitted(sample, exactly, copies=3)
        assert has_place([(request, number * count) for request, number in sample.gang], sample.free), f"fleet {seed}"
        counts[count] += 1
    assert min(counts[1], counts[2] + counts[3]) > 10, "where there is room for several, several are admitted"
