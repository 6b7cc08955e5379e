"""Status of simulated Clusters."""

import pytest

from localup.karmada.clusters import DescriptionError, MemberDescription, with_summary
from localup.karmada.member import Member
from localup.karmada.objects import Key
from localup.karmada.workloads import IdenticalPods, Workload
from tests.clusters import default_models

NOON = 1_800_000_000.0


def cluster(**annotations):
    told = {f"standin.volcano-global.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {"metadata": {"name": "m1", "annotations": told}, "spec": {}}


def summary(shown, member):
    description = MemberDescription.of(shown)
    member.allocatable, member.external_usage = description.allocatable, description.external_usage
    member.node_sizes = description.nodes
    return with_summary(shown, description, member, now=NOON)["status"]


def test_usage_is_divided_into_allocated_and_allocating():
    told = cluster(allocatable='{"cpu": "4", "pods": "10"}', external_usage='{"cpu": "1500m", "pods": "2"}')
    member = Member({"cpu": 4000, "pods": 10000}, {"cpu": 1500, "pods": 2000})
    member.submit(Key("n", "a"), Workload((IdenticalPods({"cpu": 1000, "pods": 1000}, 4, 1),)), 0)
    member.advance(0)
    assert summary(told, member)["resourceSummary"] == {
        "allocatable": {"cpu": "4", "pods": "10"},
        "allocated": {"cpu": "3500m", "pods": "4"},
        "allocating": {"cpu": "2", "pods": "2"},
    }


def test_nodes_are_added_and_counted_by_grade():
    sizes = '[{"count": 3, "allocatable": {"cpu": "64", "memory": "256Gi"}}, {"count": 1, "allocatable": {"cpu": "4"}}]'
    told = cluster(nodes=sizes, external_usage='{"cpu": "60", "memory": "16Gi"}')
    told["spec"]["resourceModels"] = default_models()
    shown = summary(told, Member())
    assert shown["nodeSummary"] == {"readyNum": 4, "totalNum": 4}
    assert shown["resourceSummary"]["allocatable"] == {"cpu": "196", "memory": "768Gi", "pods": "440"}
    counted = {modeling["grade"]: modeling["count"] for modeling in shown["resourceSummary"]["allocatableModelings"]}
    # Two nodes are empty, one has 4 free CPUs, and one has no memory.
    assert {grade: count for grade, count in counted.items() if count} == {6: 2, 3: 1, 0: 1}


def test_status_has_the_fields_of_a_real_one(captured_objects):
    (captured,) = captured_objects("cluster-real1")
    real = captured["status"]
    shown = summary(cluster(allocatable='{"cpu": "64"}'), Member())
    assert set(shown) == set(real)
    kinds = {"scheduling.k8s.io/v1": [{"kind": "PriorityClass", "name": "priorityclasses"}]}
    kinds |= {enablement["groupVersion"]: enablement["resources"] for enablement in real["apiEnablements"]}
    for enablement in shown["apiEnablements"]:
        assert all(resource in kinds[enablement["groupVersion"]] for resource in enablement["resources"])
    assert {condition["type"] for condition in shown["conditions"]} == {
        condition["type"] for condition in real["conditions"]
    }


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({"allocatable": "64 cores"}, id="no-json"),
        pytest.param({"allocatable": '["64"]'}, id="no-object"),
        pytest.param({"allocatable": '{"cpu": "64 cores"}'}, id="no-quantity"),
        pytest.param({"allocatable": '{"cpu": null}'}, id="null"),
        pytest.param({"allocatable": "{}", "ready": "maybe"}, id="no-readiness"),
        pytest.param({"nodes": '{"count": 4}'}, id="no-list-of-nodes"),
        pytest.param({"nodes": '[{"count": 4}]'}, id="no-node-size"),
        pytest.param({"nodes": '[{"count": 0, "allocatable": {}}]'}, id="no-node"),
        pytest.param({"nodes": '[{"count": 99999, "allocatable": {}}]'}, id="too-many-nodes"),
    ],
)
def test_invalid_annotations_are_rejected(annotations):
    with pytest.raises(DescriptionError, match=r"standin\.volcano-global\.io"):
        MemberDescription.of(cluster(**annotations))
    assert MemberDescription.of(cluster()) is None, "a cluster without annotations is not simulated"
