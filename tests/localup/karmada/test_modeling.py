"""Node counts per grade, with cases from Karmada's tests and code."""

import pytest
import yaml

from localup.controlplane import CRDS
from localup.karmada.member import Node, allocatable_modelings
from tests.clusters import default_models

GI = 2**30
EMPTY = Node({"cpu": 64_000, "memory": 256 * GI, "nvidia.com/gpu": 8_000, "pods": 110_000})


def free(**amounts):
    return Node({**amounts, "pods": 110_000})


def used(**amounts):
    return Node(EMPTY.allocatable, {"pods": 3_000, **amounts})


def test_definition_writes_the_default_grades_of_karmada():
    definition = yaml.safe_load((CRDS / "cluster.karmada.io_clusters.yaml").read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["properties"]["spec"]["properties"]["resourceModels"]["default"] == default_models()


@pytest.mark.parametrize(
    ("nodes", "grades"),
    [
        pytest.param([free(cpu=64_000, memory=512 * GI)], {7: 1}, id="both-reach-their-lower-end"),
        pytest.param([free(cpu=63_999, memory=1024 * GI)], {6: 1}, id="less-cpu"),
        pytest.param([free(cpu=128_000, memory=10 * GI)], {1: 1}, id="less-memory"),
        pytest.param([free(cpu=128_000)], {0: 1}, id="no-memory"),
        pytest.param([free(cpu=500_000, memory=4096 * GI)], {8: 1}, id="last-grade"),
        pytest.param([used(cpu=60_000, memory=16 * GI)], {3: 1}, id="usage-of-pods"),
        pytest.param([used(cpu=64_001), EMPTY], {6: 1}, id="overcommitted-node-is-left-out"),
        pytest.param([EMPTY, used(pods=110_000), EMPTY], {6: 1}, id="stops-at-a-node-without-room-for-pods"),
    ],
)
def test_a_node_counts_in_the_lowest_grade_of_its_resources(nodes, grades):
    counted = allocatable_modelings(default_models(), nodes)
    assert [item["grade"] for item in counted] == list(range(9))
    assert {item["grade"]: item["count"] for item in counted if item["count"]} == grades
    assert allocatable_modelings([], nodes) == []
