"""Cluster selection for undivided workloads, and unmet spread constraints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.placement.filter import select_clusters, unmet_constraint
from controller.engine.state.clusters import Affinity, Cluster, ClusterName, Placement, Spread, StaticWeight

CLUSTER, REGION = "cluster", "region"


def ranked(names: str) -> list[Cluster]:
    """Clusters, best first: ``e1 u1 e2`` are two of region e and one of region u."""
    return [Cluster(ClusterName(name), region=name[0]) for name in names.split()]


def chosen(placement: Placement, names: str) -> str:
    return " ".join(cluster.name for cluster in select_clusters(placement, ranked(names)))


def spread(**groups: tuple[int, int]) -> Placement:
    return Placement(spread=tuple(Spread(by, *bounds) for by, bounds in groups.items()))


@pytest.mark.parametrize(
    ("placement", "names", "expected"),
    [
        pytest.param(spread(cluster=(1, 1)), "u1 e1", "u1", id="the-best"),
        pytest.param(spread(cluster=(1, 0)), "u1 e1 e2", "", id="no-maximum-selects-none"),
        pytest.param(spread(region=(1, 1), cluster=(1, 1)), "u1 e1 e2", "e1", id="the-best-of-the-largest-region"),
        pytest.param(spread(region=(1, 1), cluster=(1, 1)), "u1 e1", "u1", id="of-equal-regions-that-of-the-best"),
        pytest.param(spread(region=(2, 2), cluster=(2, 3)), "e1 e2 u1 e3", "e1 u1 e2", id="then-the-best-of-the-rest"),
        pytest.param(spread(region=(2, 2), cluster=(1, 1)), "e1 u1", "e1 u1", id="never-fewer-than-regions"),
        pytest.param(spread(region=(1, 3), cluster=(3, 3)), "e1 u1 e2 a1", "e1 u1 e2", id="as-few-regions-as-suffice"),
        pytest.param(spread(region=(2, 2)), "e1 e2 u1 u2", "e1 u1", id="by-region-alone-one-each"),
        pytest.param(spread(provider=(1, 1)), "e1", "", id="by-provider-alone"),
        pytest.param(spread(region=(1, 1), cluster=(1, 0)), "e1 u1 e2", "e1", id="by-region-no-maximum-is-one-each"),
    ],
)
def test_selection_follows_the_spread_constraints(placement: Placement, names: str, expected: str):
    assert chosen(placement, names) == expected


def test_static_weights_override_spread_constraints():
    weights = (StaticWeight(Affinity(), 1),)
    placement = Placement(spread=(Spread(CLUSTER, 1, 1),), divided=True, weights=weights)
    assert chosen(placement, "e1 u1") == "e1 u1"


@pytest.mark.parametrize(
    ("placement", "names", "by"),
    [
        pytest.param(spread(region=(2, 2), cluster=(2, 2)), "e1 e2", REGION, id="regions"),
        pytest.param(spread(region=(1, 1), cluster=(2, 2)), "e1 u1", CLUSTER, id="clusters-of-a-region"),
        pytest.param(spread(zone=(1, 1)), "e1", "zone", id="not-supported"),
        pytest.param(spread(cluster=(1, 0)), "e1", CLUSTER, id="no-maximum-of-clusters"),
        pytest.param(spread(region=(1, 0), cluster=(1, 1)), "e1", REGION, id="no-maximum-of-regions"),
        pytest.param(spread(cluster=(1, 1)), "e1", None, id="met"),
        pytest.param(Placement(), "", None, id="none"),
    ],
)
def test_unmet_spread_constraint_is_named(placement: Placement, names: str, by: str | None):
    constraint = unmet_constraint(placement, ranked(names))
    assert (constraint.by if constraint else None) == by


def by_trying_all_sets_of_regions(region: Spread, cluster: Spread, clusters: list[Cluster]) -> bool:
    """Karmada accepts any set of regions within the bounds that has enough clusters."""
    sizes = [sum(member.region == name for member in clusters) for name in {member.region for member in clusters}]
    sets = range(1, 2 ** len(sizes))
    return any(
        region.minimum <= number.bit_count() <= region.maximum
        and sum(size for place, size in enumerate(sizes) if number >> place & 1) >= cluster.minimum
        for number in sets
    )


bounds = st.tuples(st.integers(1, 4), st.integers(0, 3)).map(lambda pair: (pair[0], sum(pair)))
fleets = st.lists(st.sampled_from("aeiou"), max_size=9).map(
    lambda regions: ranked(" ".join(f"{region}{number}" for number, region in enumerate(regions)))
)


@given(bounds, bounds, fleets)
def test_selection_equals_trying_all_sets_of_regions(
    regions: tuple[int, int], clusters: tuple[int, int], fleet: list[Cluster]
):
    placement = spread(region=regions, cluster=clusters)
    selected = select_clusters(placement, fleet)
    possible = by_trying_all_sets_of_regions(*placement.spread, fleet)
    assert (unmet_constraint(placement, fleet) is None) == possible == bool(selected)
    if selected:
        count = len({cluster.region for cluster in selected})
        assert regions[0] <= count <= regions[1]
        assert len(selected) == len({cluster.name for cluster in selected}) <= max(clusters[1], count)
