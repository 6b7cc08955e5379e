"""Node constraints of a pod as one text."""

import pytest

from controller.api.jobs import NodeClaim, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Toleration
from controller.api.jobs import decode_node_claim as decode
from controller.cache.translate.templates import node_claim

AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100"]}]}]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
    },
    "podAntiAffinity": {},
}


def test_selector_affinity_and_tolerations_are_encoded():
    pod = PodSpec(
        node_selector={"zone": "a"},
        affinity=AFFINITY,
        tolerations=[
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": None}
        ],
    )

    term = NodeSelectorTerm(match_expressions=[NodeSelectorRequirement("gpu", "In", ["h100"])])
    assert decode(node_claim(pod) or "") == NodeClaim(
        node_selector={"zone": "a"},
        node_affinity=NodeSelector([term]),
        tolerations=[Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")],
    )


def test_order_of_labels_does_not_matter():
    one, other = PodSpec(node_selector={"a": "1", "b": "2"}), PodSpec(node_selector={"b": "2", "a": "1"})

    assert node_claim(one) == node_claim(other)


@pytest.mark.parametrize(
    ("pod", "claim"),
    [
        pytest.param(PodSpec(), "", id="absent"),
        pytest.param(PodSpec(node_selector={}, affinity={}, tolerations=[]), "", id="empty"),
        pytest.param(PodSpec(affinity={"podAffinity": {}}), "", id="affinity-to-pods-only"),
        pytest.param(PodSpec(node_selector=["a"]), None, id="selector-is-a-list"),
        pytest.param(PodSpec(node_selector={"a": 1}), None, id="label-is-a-number"),
        pytest.param(PodSpec(affinity="x"), None, id="affinity-is-a-text"),
        pytest.param(PodSpec(tolerations={"key": "a"}), None, id="tolerations-are-a-mapping"),
        pytest.param(PodSpec(tolerations=[{"key": "a"}] * 5000), None, id="very-long"),
    ],
)
def test_claim_is_empty_without_constraints_and_else_unknown(pod, claim):
    assert node_claim(pod) == claim
