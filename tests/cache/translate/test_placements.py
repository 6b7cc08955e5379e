"""Translation of placements, with Karmada's defaults."""

import msgspec
import pytest

from controller.api import bindings as wire
from controller.cache.translate.bindings import MAX_CONDITIONS, MAX_TERMS, PlacementError, translate_placement
from controller.engine.state.clusters import Affinity, Placement, Requirement, Spread, StaticWeight, Term, Toleration


def read(document: dict) -> Placement:
    return translate_placement(msgspec.convert(document, wire.Placement))


def divided(**more) -> dict:
    return {"replicaScheduling": {"replicaSchedulingType": "Divided", **more}}


GPU = {"clusterNames": ["m1"]}

CASES = [
    pytest.param({}, Placement(), id="nothing"),
    pytest.param(
        {"clusterAffinity": {"clusterNames": ["b", "a"], "exclude": ["c", "d"]}},
        Placement(Affinity(("b", "a"), excluded=frozenset({"c", "d"}))),
        id="names-and-exclusions",
    ),
    pytest.param({"clusterAffinity": {}}, Placement(Affinity()), id="an-affinity-that-restricts-nothing"),
    pytest.param(
        {
            "clusterAffinity": {
                "labelSelector": {
                    "matchLabels": {"z": "1", "a": "2"},
                    "matchExpressions": [{"key": "k", "operator": "NotIn", "values": ["v"]}],
                },
                "fieldSelector": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["east"]}]},
            }
        },
        Placement(
            Affinity(
                labels=(
                    Requirement("a", "In", ("2",)),
                    Requirement("z", "In", ("1",)),
                    Requirement("k", "NotIn", ("v",)),
                ),
                fields=(Requirement("region", "In", ("east",)),),
            )
        ),
        id="selectors",
    ),
    pytest.param(
        {"clusterAffinities": [{"affinityName": "first", **GPU}, {"affinityName": "second"}]},
        Placement(terms=(Term("first", Affinity(("m1",))), Term("second", Affinity()))),
        id="ordered-terms",
    ),
    pytest.param(
        {
            "clusterAffinities": [
                {"affinityName": "own", **GPU, "overflowAffinities": [{"affinityName": "rented"}, {"exclude": ["m2"]}]}
            ]
        },
        Placement(terms=(Term("own", Affinity(("m1",)), overflow=(Affinity(), Affinity(excluded=frozenset({"m2"})))),)),
        id="overflow",
    ),
    pytest.param(
        {
            "clusterTolerations": [
                {"key": "a", "value": "b", "effect": "NoSchedule"},
                {"operator": "Exists"},
                {"key": "n", "operator": "Gt", "value": "1"},
            ]
        },
        Placement(tolerations=(Toleration("a", value="b", effect="NoSchedule"), Toleration(operator="Exists"))),
        id="tolerations-an-unknown-operator-tolerates-nothing",
    ),
    pytest.param(
        {
            "spreadConstraints": [
                {},
                {"spreadByField": "region", "minGroups": 2, "maxGroups": 3},
                {"spreadByLabel": "rack"},
            ]
        },
        Placement(spread=(Spread("cluster", 1, 0), Spread("region", 2, 3), Spread("label:rack", 1, 0))),
        id="spread",
    ),
    pytest.param({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}}, Placement(), id="duplicated"),
    pytest.param(
        {"replicaScheduling": {}}, Placement(divided=True, weights=(StaticWeight(Affinity(), 1),)), id="empty"
    ),
    pytest.param(
        divided(replicaDivisionPreference="Aggregated"), Placement(divided=True, aggregated=True), id="aggregated"
    ),
    pytest.param(
        divided(replicaDivisionPreference="Weighted"),
        Placement(divided=True, weights=(StaticWeight(Affinity(), 1),)),
        id="weighted-without-weights-is-equal",
    ),
    pytest.param(
        divided(replicaDivisionPreference="Weighted", weightPreference={"dynamicWeight": "AvailableReplicas"}),
        Placement(divided=True),
        id="dynamic",
    ),
    pytest.param(
        divided(
            replicaDivisionPreference="Weighted",
            weightPreference={"staticWeightList": [{"targetCluster": GPU, "weight": 3}]},
        ),
        Placement(divided=True, weights=(StaticWeight(Affinity(("m1",)), 3),)),
        id="static",
    ),
]


@pytest.mark.parametrize(("document", "expected"), CASES)
def test_placement_defaults(document, expected):
    assert read(document) == expected


def test_binding_without_placement_allows_any_cluster():
    assert translate_placement(None) == Placement()


def large(**parts):
    expressions = [{"key": f"k{n}", "operator": "In", "values": ["a"] * 9} for n in range(parts.get("expressions", 0))]
    names = [f"m{n}" for n in range(parts.get("names", 0))]
    affinity = {"clusterNames": names, "exclude": names, "labelSelector": {"matchExpressions": expressions}}
    tolerations = [{"key": f"t{n}"} for n in range(parts.get("tolerations", 0))]
    overflow = [{"clusterNames": [f"o{n}" for n in range(parts.get("overflow", 0))]}, *[{}] * parts.get("empty", 0)]
    terms = [{"affinityName": f"a{n}", **affinity, "overflowAffinities": overflow} for n in range(parts["terms"])]
    weights = [{"targetCluster": {"clusterNames": ["m"]}, "weight": 1}] * parts.get("weights", 0)
    division = divided(weightPreference={"staticWeightList": weights}) if weights else {}
    return {"clusterAffinities": terms, "clusterTolerations": tolerations, **division}


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"terms": MAX_TERMS}, id="terms"),
        pytest.param({"terms": 1, "names": (MAX_CONDITIONS - 1) // 2}, id="names"),
        pytest.param({"terms": 1, "expressions": (MAX_CONDITIONS - 1) // 10}, id="values"),
        pytest.param({"terms": 0, "tolerations": MAX_CONDITIONS}, id="tolerations"),
        pytest.param({"terms": 1, "overflow": MAX_CONDITIONS - 1}, id="overflow"),
        pytest.param({"terms": 1, "empty": MAX_CONDITIONS - 1}, id="empty-overflow-affinities"),
        pytest.param({"terms": 0, "weights": MAX_CONDITIONS // 2}, id="static-weights"),
    ],
)
def test_too_large_placement_is_rejected(parts):
    *_, last = parts
    read(large(**parts))
    with pytest.raises(PlacementError, match="use at most"):
        read(large(**{name: count + (name == last) for name, count in parts.items()}))


@pytest.mark.parametrize(("operator", "named"), [("Near", "Near"), ("o" * 100_000, "o" * 63)], ids=["short", "long"])
def test_unknown_operator_is_rejected_by_name(operator, named):
    with pytest.raises(PlacementError, match=rf"operator '{named}' is unknown; use one of In, NotIn"):
        read({"clusterAffinity": {"labelSelector": {"matchExpressions": [{"key": "k", "operator": operator}]}}})
