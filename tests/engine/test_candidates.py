"""Candidates as Karmada's scheduler filters them.

The expectations of both tables were verified against the code of Karmada v1.19.0-rc.0. One
difference is intended: a constraint without a maximum is no limit here, while Karmada selects no
cluster.

Six clusters, named by letters: two of a provider with regions and zones, one
without zones, one with neither provider nor region, one tainted, one without
the kind.
"""

from typing import Any

import pytest

from controller.engine.placement import filter as under_test
from controller.engine.placement.filter import CandidateCache, Candidates, Exclusion, candidates, wanted_copies
from controller.engine.state.clusters import (
    Affinity,
    ApiKind,
    Cluster,
    ClusterName,
    Placement,
    Requirement,
    Spread,
    StaticWeight,
    Taint,
    Term,
    Toleration,
    matches,
)
from controller.engine.state.workloads import VOLCANO_JOB, SchedulingRequirements
from tests.retained import retained

DEPLOYMENT = ApiKind("apps/v1", "Deployment")
ML = Taint("dedicated", "ml", "NoSchedule")
SOFT = Taint("busy", "", "PreferNoSchedule")
NOT_READY = Taint("cluster.karmada.io/not-ready", "", "NoSchedule")
UNREACHABLE = Taint("cluster.karmada.io/unreachable", "", "NoExecute")


def cluster(name: str, *zones: str, provider: str = "", region: str = "", **parts: Any) -> Cluster:
    parts.setdefault("enablements", frozenset({VOLCANO_JOB}))
    return Cluster(ClusterName(name), provider=provider, region=region, zones=zones, allocatable={}, **parts)


FLEET = (
    cluster("f", "eu-a", provider="aws", region="eu", enablements=frozenset({DEPLOYMENT})),
    cluster("d", "eu-b"),
    cluster("c", provider="gcp", region="eu", labels={"gpu": "h100", "racks": "8"}),
    cluster("e", "as-a", provider="own", region="asia", taints=(SOFT, ML)),
    cluster("a", "eu-a", "eu-b", provider="aws", region="eu", labels={"gpu": "a100", "tier": "gold", "racks": "12"}),
    cluster("b", "us-a", provider="aws", region="us", labels={"tier": "gold", "racks": "many"}),
)


def named(letters: str) -> tuple[ClusterName, ...]:
    return tuple(ClusterName(letter) for letter in letters)


def asks(key: str, operator: Any, *values: str) -> Requirement:
    return Requirement(key, operator, values)


def labels(*requirements: Requirement) -> Affinity:
    return Affinity(labels=requirements)


def fields(*requirements: Requirement) -> Affinity:
    return Affinity(fields=requirements)


def only(letters: str, **parts: Any) -> Affinity:
    return Affinity(names=named(letters), **parts)


def without(letters: str, **parts: Any) -> Affinity:
    return Affinity(excluded=frozenset(named(letters)), **parts)


def tolerates(key: str = "", operator: Any = "Equal", value: str = "", effect: str = "") -> Placement:
    return Placement(tolerations=(Toleration(key, operator, value, effect),))


def terms(**affinities: Affinity) -> Placement:
    return Placement(terms=tuple(Term(name, affinity) for name, affinity in affinities.items()))


def spread(*constraints: Spread, **parts: Any) -> Placement:
    return Placement(spread=constraints, **parts)


def shape(placement: Placement | Affinity = Placement(), **parts: Any) -> SchedulingRequirements:  # noqa: B008 - frozen
    if isinstance(placement, Affinity):
        placement = Placement(affinity=placement)
    for name in ("current_clusters", "evicting_from", "excluded_clusters"):
        if name in parts:
            parts[name] = frozenset(named(parts[name]))
    return SchedulingRequirements(placement=placement, **parts)


def row(name: str, expected: str, placement: Placement | Affinity = Placement(), **parts: Any) -> Any:  # noqa: B008 - frozen
    return pytest.param(shape(placement, **parts), expected, id=name)


ONE = Spread("cluster", 1, 1)
EVERY_CLUSTER = (StaticWeight(Affinity(), 1),)

TABLE = [
    # Names and exclusions
    row("no-placement", "abcd"),
    row("by-name", "bd", only("db")),
    row("by-the-name-of-a-tainted-cluster", "", only("e")),
    row("by-the-name-of-a-cluster-without-the-kind", "", only("f")),
    row("excluded", "bd", without("ac")),
    row("excluded-and-named", "b", only("ab", excluded=frozenset(named("a")))),
    # Labels
    row("a-label", "ab", labels(asks("tier", "In", "gold"))),
    row("not-a-label-is-true-where-it-is-missing", "bcd", labels(asks("gpu", "NotIn", "a100"))),
    row("a-label-exists", "ac", labels(asks("gpu", "Exists"))),
    row("a-label-does-not-exist", "bd", labels(asks("gpu", "DoesNotExist"))),
    row("two-labels", "a", labels(asks("tier", "In", "gold"), asks("gpu", "Exists"))),
    row("a-label-and-an-exclusion", "c", without("a", labels=(asks("gpu", "Exists"),))),
    row("an-empty-label-value-is-not-a-missing-one", "", labels(asks("gpu", "In", ""))),
    row("in-nothing-is-not-valid", "", labels(asks("gpu", "In"))),
    row("exists-with-a-value-is-not-valid", "", labels(asks("gpu", "Exists", "a100"))),
    row("a-value-that-no-label-can-have-is-not-valid", "", labels(asks("gpu", "NotIn", "no way"))),
    row("a-value-that-is-just-short-enough", "abcd", labels(asks("gpu", "NotIn", "x" * 63))),
    row("labels-are-not-compared", "", labels(asks("racks", "Gt", "9"))),
    # Fields
    row("a-provider", "ab", fields(asks("provider", "In", "aws"))),
    row("not-a-provider-is-true-where-there-is-none", "cd", fields(asks("provider", "NotIn", "aws"))),
    row("a-region-exists", "abc", fields(asks("region", "Exists"))),
    row("an-empty-provider-is-a-missing-one", "", fields(asks("provider", "In", ""))),
    row("another-field-is-never-there", "", fields(asks("country", "In", "fr"))),
    row("another-field-is-always-missing", "abcd", fields(asks("country", "NotIn", "fr"))),
    row("a-provider-in-nothing-is-not-valid", "", fields(asks("provider", "In"))),
    row("any-of-several-zones", "ab", fields(asks("zone", "In", "eu-a", "us-a"))),
    row("none-of-the-zones", "bc", fields(asks("zone", "NotIn", "eu-b"))),
    row("a-zone-in-nothing", "", fields(asks("zone", "In"))),
    row("zones-exist", "abd", fields(asks("zone", "Exists"))),
    row("zones-exist-whatever-the-values", "abd", fields(asks("zone", "Exists", "no", "matter"))),
    row("zones-do-not-exist", "c", fields(asks("zone", "DoesNotExist"))),
    row("zones-are-not-compared", "", fields(asks("zone", "Gt", "1"))),
    row("labels-fields-and-names", "a", only("abd", labels=(asks("gpu", "Exists"),), fields=(asks("zone", "Exists"),))),
    # Taints
    row("an-equal-toleration", "abcde", tolerates("dedicated", value="ml")),
    row("a-toleration-of-any-value", "abcde", tolerates("dedicated", "Exists")),
    row("a-toleration-of-the-effect", "abcde", tolerates("dedicated", "Exists", effect="NoSchedule")),
    row("a-toleration-of-another-effect", "abcd", tolerates("dedicated", "Exists", effect="NoExecute")),
    row("a-toleration-of-a-value-whatever-the-key", "abcde", tolerates(value="ml")),
    row("a-toleration-is-no-affinity", "b", Placement(affinity=only("b"), tolerations=(Toleration("", "Exists"),))),
    row("what-it-already-runs-on-stays-in-spite-of-a-taint", "abcde", current_clusters="e"),
    # The kind
    row("another-kind", "f", api=DEPLOYMENT),
    row("another-version-of-the-kind", "", api=ApiKind("batch.volcano.sh/v1", "Job")),
    row("what-it-already-runs-on-stays-without-the-kind", "abcdf", current_clusters="f"),
    row("what-it-already-runs-on-goes-with-the-affinity", "b", only("b"), current_clusters="a"),
    # Eviction tasks and excluded clusters
    row("being-evicted", "acd", evicting_from="b"),
    row("being-evicted-from-where-it-runs", "acd", evicting_from="b", current_clusters="b"),
    row("left-out", "abd", excluded_clusters="c"),
    # Spread: the property
    row("spread-by-provider", "abc", spread(Spread("provider"), ONE)),
    row("spread-by-region", "ac", spread(Spread("region", 1, 3), ONE)),
    row("spread-by-region-when-divided", "abc", spread(Spread("region", 1, 3), ONE, divided=True)),
    row("spread-by-region-with-replicas", "abc", spread(Spread("region", 1, 3), ONE), replicas=1),
    row("spread-by-equal-regions", "ab", spread(Spread("region", 1, 1), ONE), evicting_from="c"),
    row("spread-by-the-second-largest-region", "abc", spread(Spread("region", 2, 3), ONE)),
    row("spread-by-zone", "abd", spread(Spread("zone"), ONE)),
    row("where-it-runs-without-the-property", "abd", spread(Spread("zone"), ONE), current_clusters="c"),
    row("spread-by-label-beside-cluster-asks-for-no-label", "abcd", spread(Spread("label:tier"), ONE)),
    # Spread: the groups
    row("more-clusters-than-there-are", "", spread(Spread("cluster", 5, 9))),
    row("more-regions-than-there-are", "", spread(Spread("region", 3, 3), Spread("cluster", 3, 3))),
    row("fewer-clusters-in-one-region-than-wanted", "", spread(Spread("region", 1, 1), Spread("cluster", 3, 3))),
    row("providers-are-not-counted", "abc", spread(Spread("provider", 9, 9), ONE)),
    row("by-provider-alone-is-not-supported", "", spread(Spread("provider"))),
    row("no-maximum-of-clusters-is-none", "", spread(Spread("cluster"))),
    row("no-maximum-of-regions-is-none", "", spread(Spread("region"), ONE)),
    row("no-maximum-of-clusters-beside-regions-is-one-each", "ac", spread(Spread("region", 1, 3), Spread("cluster"))),
    row("no-maximum-of-more-clusters-than-regions", "", spread(Spread("region", 1, 3), Spread("cluster", 2))),
    row("static-weights-need-no-maximum", "abcd", spread(Spread("cluster"), divided=True, weights=EVERY_CLUSTER)),
    row("by-region-alone", "abc", spread(Spread("region", 2, 2))),
    row(
        "static-weights-overrule-the-groups",
        "abcd",
        spread(Spread("cluster", 9, 9), divided=True, weights=EVERY_CLUSTER),
    ),
    row(
        "static-weights-do-not-overrule-the-property",
        "abd",
        spread(Spread("zone"), Spread("cluster", 9, 9), divided=True, weights=EVERY_CLUSTER),
    ),
    row("duplicated-with-weights-counts-the-groups", "", spread(Spread("cluster", 9, 9), weights=EVERY_CLUSTER)),
    # Together
    row(
        "all-at-once",
        "e",
        Placement(
            affinity=without("ab", fields=(asks("region", "Exists"),)),
            tolerations=(Toleration("dedicated", "Exists"),),
            spread=(Spread("zone"), ONE),
        ),
    ),
]


@pytest.mark.parametrize(("wanted", "expected"), TABLE)
def test_candidates_equal_clusters_that_karmada_would_not_filter(wanted: SchedulingRequirements, expected: str):
    result = candidates(wanted, FLEET)
    assert result.names == named(expected)
    assert sorted((*result.names, *result.excluded)) == sorted(named("abcdef"))
    assert candidates(wanted, FLEET[::-1]) == result


GPU_FIRST = {"gpu": labels(asks("gpu", "In", "b200")), "gold": labels(asks("tier", "In", "gold")), "any": Affinity()}
NAMED = {"one": only("a"), "two": only("b"), "three": only("cd")}
TWO = spread(Spread("cluster", 2, 2)).spread


@pytest.mark.parametrize(
    ("wanted", "term", "expected"),
    [
        pytest.param(shape(terms(**NAMED)), "one", "a", id="the-first-term"),
        pytest.param(shape(terms(**NAMED), observed_term="two"), "two", "b", id="from-the-observed-one-on"),
        pytest.param(shape(terms(**NAMED), observed_term="gone"), "one", "a", id="an-unknown-observed-one"),
        pytest.param(shape(terms(**GPU_FIRST), observed_term="gpu"), "gold", "ab", id="on-from-the-observed-one"),
        pytest.param(shape(terms(**NAMED), evicting_from="a"), "two", "b", id="on-while-being-evicted"),
        pytest.param(shape(terms(**NAMED), excluded_clusters="a"), "one", "", id="not-on-because-we-leave-it-out"),
        pytest.param(
            shape(Placement(terms=terms(**NAMED).terms, spread=TWO)), "three", "cd", id="on-until-the-groups-suffice"
        ),
        pytest.param(shape(terms(tainted=only("e"), none=only("f"))), "tainted", "", id="none-serves"),
        pytest.param(
            shape(terms(none=only("e"), last=only("f")), observed_term="last"),
            "last",
            "",
            id="none-that-is-left-serves",
        ),
        pytest.param(
            shape(Placement(affinity=only("d"), terms=terms(**NAMED).terms)),
            "",
            "d",
            id="an-affinity-before-terms",
        ),
    ],
)
def test_first_affinity_term_with_a_cluster_applies(wanted: SchedulingRequirements, term: str, expected: str):
    result = candidates(wanted, FLEET)
    assert (result.names, result.term) == (named(expected), term)


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [pytest.param(4, "ab", id="with-replicas"), pytest.param(0, "a", id="without-replicas")],
)
def test_only_workloads_with_replicas_use_overflow_clusters(replicas: int, expected: str):
    placement = Placement(terms=(Term("main", only("a"), overflow=(only("b"),)),))
    assert candidates(shape(placement, replicas=replicas), FLEET).names == named(expected)


def test_term_without_own_clusters_uses_its_overflow():
    placement = Placement(terms=(Term("main", only("e"), overflow=(only("f"), only("b"))), Term("next", only("a"))))
    assert candidates(shape(placement, replicas=1), FLEET).names == named("b")


def test_every_excluded_cluster_has_its_first_reason():
    wanted = shape(
        Placement(affinity=without("d"), spread=(Spread("zone"), ONE)),
        evicting_from="b",
        excluded_clusters="a",
    )
    going = cluster("g", "eu-a", deleting=True)
    assert candidates(wanted, [*FLEET, going]) == Candidates(
        excluded={
            "a": Exclusion.STARTUP_FAILED,
            "b": Exclusion.EVICTION_TASK,
            "c": Exclusion.SPREAD_PROPERTY_MISSING,
            "d": Exclusion.AFFINITY_MISMATCH,
            "e": Exclusion.UNTOLERATED_TAINT,
            "f": Exclusion.API_NOT_ENABLED,
            "g": Exclusion.DELETING,
        }
    )


def test_without_candidates_the_first_term_gives_the_reasons():
    result = candidates(shape(terms(first=only("e"), second=only("f"))), FLEET)
    assert result.excluded[ClusterName("e")] is Exclusion.UNTOLERATED_TAINT
    assert result.excluded[ClusterName("f")] is Exclusion.AFFINITY_MISMATCH


@pytest.mark.parametrize("taint", [NOT_READY, UNREACHABLE], ids=["not-ready", "unreachable"])
def test_readiness_is_determined_by_taints_only(taint: Taint):
    ill, tainted = cluster("x", ready=False), cluster("y", ready=False, taints=(taint,))
    assert candidates(shape(), [ill, tainted]).names == named("x")
    assert candidates(shape(tolerates(taint.key, "Exists")), [ill, tainted]).names == named("xy")


@pytest.mark.parametrize(
    ("site", "parts", "expected"),
    [
        pytest.param(cluster("x", taints=(UNREACHABLE, NOT_READY)), {}, "x", id="not-ready"),
        pytest.param(cluster("x", deleting=True), {}, "x", id="deleting"),
        pytest.param(cluster("x"), {"excluded_clusters": "x"}, "x", id="left-out"),
        pytest.param(cluster("x"), {"evicting_from": "x"}, "x", id="being-evicted"),
        pytest.param(cluster("x", taints=(NOT_READY, ML)), {}, "", id="another-taint"),
        pytest.param(cluster("x", enablements=frozenset()), {}, "", id="no-kind"),
    ],
)
def test_only_temporary_exclusions_are_ignored_as_if_usable(site: Cluster, parts: dict[str, str], expected: str):
    assert candidates(shape(**parts), [site]).names == ()
    assert candidates(shape(**parts), [site], as_if_usable=True).names == named(expected)


@pytest.mark.parametrize(
    ("provider", "requirement", "expected"),
    [
        pytest.param("12", asks("provider", "Gt", "9"), True, id="above"),
        pytest.param("9", asks("provider", "Gt", "9"), False, id="not-above-itself"),
        pytest.param("-3", asks("provider", "Lt", "9"), True, id="a-negative-number"),
        pytest.param("12", asks("provider", "Gt"), False, id="no-bound"),
        pytest.param("12", asks("provider", "Lt", "9"), False, id="not-below"),
        pytest.param("many", asks("provider", "Gt", "9"), False, id="no-number"),
        pytest.param("", asks("provider", "Lt", "9"), False, id="missing"),
        pytest.param("9999999999999999999", asks("provider", "Gt", "9"), False, id="beyond-64-bits"),
        pytest.param("1_0", asks("provider", "Gt", "9"), False, id="an-underscore"),
    ],
)
def test_cluster_fields_are_compared_as_integers(provider: str, requirement: Requirement, *, expected: bool):
    assert matches(fields(requirement), cluster("x", provider=provider)) is expected


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        pytest.param(Placement(), None, id="no-constraint"),
        pytest.param(spread(Spread("region", 2, 2), Spread("cluster")), 2, id="one-in-each-region-without-maximum"),
        pytest.param(spread(Spread("region", 1, 1), ONE), 1, id="one-cluster-in-one-region"),
        pytest.param(spread(Spread("region", 3, 3), Spread("cluster", 1, 2)), 3, id="one-in-each-region-at-least"),
        pytest.param(spread(ONE, divided=True, weights=EVERY_CLUSTER), None, id="static-weights-overrule-it"),
    ],
)
def test_spread_bounds_the_clusters_of_a_duplicated_workload(placement: Placement, expected: int | None):
    assert wanted_copies(shape(placement)) == expected


@pytest.mark.parametrize(("entries", "is_cached"), [(2, True), (1, False)])
def test_cached_candidates_are_bounded_by_clusters(monkeypatch: pytest.MonkeyPatch, entries: int, *, is_cached: bool):
    monkeypatch.setattr(under_test, "_MAX_CACHED_CLUSTERS", entries * len(FLEET))
    cache = CandidateCache()
    first, *others = [SchedulingRequirements({}, {}, Placement(tolerations=(Toleration(key),))) for key in "abc"]
    result = cache.of(first, FLEET)
    assert cache.of(first, FLEET) is result
    for requirements in others:
        cache.of(requirements, FLEET)
    assert (cache.of(first, FLEET) is result) == is_cached


def test_cached_candidates_are_bounded_by_the_size_of_placements(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(under_test, "_MAX_CACHED_CHARACTERS", 200_000)
    cache = CandidateCache()
    for number in range(20):
        names = tuple(ClusterName(f"cluster-{number}-{index}") for index in range(1_000))
        cache.of(SchedulingRequirements({}, {}, Placement(Affinity(names))), FLEET)
    counts = retained([cache])
    assert counts["CandidateCache._affinities"] <= 10
    assert counts["CandidateCache._candidates"] <= 10
