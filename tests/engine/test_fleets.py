"""Random fleets: no gang that fits an empty fleet is refused for good; counts admitted gangs that do not fit.

``make test`` checks some of the fleets, ``make test-long`` 2,000, and
prints the rates that docs/concepts/placement.md names.
"""

from collections import Counter
from collections.abc import Iterable

import pytest

from controller.engine.engine import Engine
from controller.engine.policy import NodeShapes, Policy
from controller.engine.reasons import Reason
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import Workload, WorkloadUid
from tests.engine.fleets import Fleet, fleet

FEW, MANY = 300, 2_000


def verdict(found: Fleet, *shapes: NodeShapes) -> Reason | None:
    """Return the pending reason of the gang, ``None`` if it is admitted."""
    state = Engine(Policy(node_shapes=shapes))
    state.queue_changed(Queue(QueueName("a")))
    state.cluster_changed(found.cluster, 0)
    state.workload_changed(Workload(WorkloadUid("u"), "ml", "j", "Job", QueueName("a"), found.shape), 0)
    state.plan(0)
    refusal = state.refusal(WorkloadUid("u"))
    return None if refusal is None else refusal.reason


NEVER = {Reason.EXCEEDS_EVERY_CLUSTER, Reason.EXCEEDS_QUEUE_LIMIT}


def rates(seeds: Iterable[int]) -> Counter[str]:
    """Evaluate the fleets with resource models and with node shapes; count admitted gangs and those that do not fit."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        found = fleet(seed)
        empty, now = found.fits_empty(), found.fits_now()
        for means, shapes in (("models", ()), ("node shapes", (found.node_shapes,))):
            reason = verdict(found, *shapes)
            assert not (empty and reason in NEVER), f"fleet {seed}: {reason} with {means}, but it fits while empty"
            assert not (now and reason is not None), f"fleet {seed}: {reason} with {means}, but it fits now"
            counts[f"{means}: admitted"] += reason is None
            counts[f"{means}: in vain"] += reason is None and not now
            counts[f"{means}: never fits"] += reason is None and not empty
    return counts


def in_percent(counts: Counter[str], means: str, what: str) -> float:
    return 100 * counts[f"{means}: {what}"] / max(counts[f"{means}: admitted"], 1)


def report(counts: Counter[str]) -> None:
    for means in ("models", "node shapes"):
        vain, never = (in_percent(counts, means, what) for what in ("in vain", "never fits"))
        admitted = counts[f"{means}: admitted"]
        print(f"{means}: {admitted} gangs admitted, {vain:.1f} % do not fit now, {never:.1f} % never fit")  # noqa: T201 - the rates


def test_gang_fitting_an_empty_fleet_never_exceeds_every_cluster():
    counts = rates(range(FEW))
    report(counts)
    assert counts["node shapes: never fits"] == 0
    assert counts["node shapes: in vain"] < counts["models: in vain"]


@pytest.mark.long
def test_gang_fitting_any_of_2000_empty_fleets_is_not_refused():
    counts = rates(range(MANY))
    report(counts)
    assert counts["node shapes: never fits"] == 0
