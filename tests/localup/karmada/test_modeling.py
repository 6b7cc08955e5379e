"""Node counts per grade, with cases from Karmada's tests and code."""

import pytest
import yaml

from localup.controlplane import CRDS
from localup.karmada.member import Node, allocatable_modelings
from tests.clusters import default_models

GI = 2**30
EMPTY_NODE = {"cpu": 64_000, "memory": 256 * GI, "nvidia.com/gpu": 8_000, "pods": 110_000}


def grades(*nodes):
    counted = allocatable_modelings(default_models(), nodes)
    assert [item["grade"] for item in counted] == list(range(9))
    return {item["grade"]: item["count"] for item in counted if item["count"]}


def test_definition_writes_the_default_grades_of_karmada():
    definition = yaml.safe_load((CRDS / "cluster.karmada.io_clusters.yaml").read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["properties"]["spec"]["properties"]["resourceModels"]["default"] == default_models()


@pytest.mark.parametrize(
    ("free", "grade"),
    [
        pytest.param({"cpu": 64_000, "memory": 512 * GI}, 7, id="both-reach-their-lower-end"),
        pytest.param({"cpu": 63_999, "memory": 1024 * GI}, 6, id="less-cpu"),
        pytest.param({"cpu": 128_000, "memory": 10 * GI}, 1, id="less-memory"),
        pytest.param({"cpu": 128_000}, 0, id="no-memory"),
        pytest.param({"cpu": 500_000, "memory": 4096 * GI}, 8, id="last-grade"),
    ],
)
def test_a_node_counts_in_the_lowest_grade_of_its_resources(free, grade):
    assert grades(Node({**free, "pods": 110_000})) == {grade: 1}


def test_usage_of_pods_reduces_the_grade():
    assert grades(Node(EMPTY_NODE, {"cpu": 60_000, "memory": 16 * GI, "pods": 3_000})) == {3: 1}


def test_an_overcommitted_node_is_left_out():
    assert grades(Node(EMPTY_NODE, {"cpu": 64_001, "pods": 3_000}), Node(EMPTY_NODE)) == {6: 1}


def test_counting_stops_at_a_node_that_takes_no_more_pods():
    full = Node(EMPTY_NODE, {"cpu": 1_000, "pods": 110_000})
    assert grades(Node(EMPTY_NODE), full, Node(EMPTY_NODE)) == {6: 1}


def test_a_cluster_without_grades_reports_no_counts():
    assert allocatable_modelings([], [Node(EMPTY_NODE)]) == []
