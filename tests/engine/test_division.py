"""Division of replicas by static weights (C4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.placement.division import split_by_weight
from tests.scenario import Scenario

WEIGHTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3) | st.integers(1, 100), min_size=1)


@pytest.mark.parametrize(
    ("replicas", "weights", "parts"),
    [
        pytest.param(9, {"a": 1, "b": 2}, {"a": 3, "b": 6}, id="exact"),
        pytest.param(9, {"a": 1, "b": 3}, {"a": 2, "b": 7}, id="rounded-to-the-nearest"),
        pytest.param(5, {"a": 5, "b": 1, "c": 1}, {"a": 3, "b": 1, "c": 1}, id="remainders-of-small-weights-first"),
        pytest.param(1, {"a": 1, "b": 9}, {"a": 0, "b": 1}, id="fewer-replicas-than-clusters"),
        pytest.param(2, {}, {}, id="no-clusters"),
        pytest.param(2**31 - 1, {"a": 1, "b": 1}, {"a": 2**30, "b": 2**30 - 1}, id="many"),
    ],
)
def test_replicas_are_divided_by_weight(replicas, weights, parts):
    assert split_by_weight(replicas, weights) == parts


@pytest.mark.parametrize(("reverses_ties", "parts"), [(False, {"a": 2, "b": 1}), (True, {"a": 1, "b": 2})])
def test_tie_is_decided_by_name(reverses_ties, parts):
    assert split_by_weight(3, {"b": 1, "a": 1}, reverses_ties=reverses_ties) == parts


@given(st.integers(0, 40), WEIGHTS, st.booleans())
def test_division_equals_that_of_one_replica_at_a_time(replicas, weights, reverses_ties):
    parts = dict.fromkeys(sorted(weights, reverse=reverses_ties), 0)
    for _ in range(replicas):
        parts[min(parts, key=lambda name: (-weights[name] / (2 * parts[name] + 1), parts[name]))] += 1
    assert split_by_weight(replicas, weights, reverses_ties=reverses_ties) == parts


def test_replicas_that_fit_after_an_admission_do_not_wait():
    """While "near" fits a replica, too many are divided before the overflow clusters: "own" has all the weight."""
    where = {
        "divided": True,
        "spread": [],
        "terms": [{"name": "t", "names": ["own", "near"], "overflow": [{"names": ["rented"]}]}],
        "weights": [{"names": ["own"], "weight": 1}, {"names": ["rented"], "weight": 1}],
    }
    scenario = Scenario(
        {
            "clusters": [
                {"name": "near", "has": {"cpu": 3}},
                {"name": "own", "has": {"cpu": 6}, "used": {"cpu": 3}},
                {"name": "rented", "has": {"cpu": 3}},
            ],
            "queues": [{"name": "A"}],
            "jobs": [
                {"name": "web", "queue": "A", "replicas": 2, "asks": {"cpu": 3}, "placement": where},
                {"name": "on-near", "queue": "A", "asks": {"cpu": 3}, "placement": {"affinity": {"names": ["near"]}}},
            ],
        }
    )
    first = scenario.engine.plan(scenario.now)
    assert [decision.workload.name for decision in first.decisions] == ["on-near"]
    assert first.wake_at == scenario.now
    second = scenario.engine.plan(scenario.now)
    assert [decision.workload.name for decision in second.decisions] == ["web"]
    assert second.wake_at != scenario.now
