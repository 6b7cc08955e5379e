"""Selection of the policy that propagates a template."""

import pytest

from localup.karmada import objects as names
from localup.karmada.detector import (
    Claim,
    is_claimed,
    is_lost,
    policy_of,
    selects_or_claims,
    with_claim,
    without_claim,
)

JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
TEMPLATE = {**JOB, "metadata": {"name": "train", "namespace": "team-a", "labels": {"team": "a"}}}
BY_NAME = {"name": "train"}
BY_LABEL = {"labelSelector": {"matchLabels": {"team": "a"}}}


def policy(name, *selectors, kind="PropagationPolicy", namespace="team-a", priority=0, **metadata):
    place = {} if kind.startswith("Cluster") else {"namespace": namespace}
    label = names.CLUSTER_POLICY_ID if kind.startswith("Cluster") else names.POLICY_ID
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "labels": {label: f"id-of-{name}"}, **place, **metadata},
        "spec": {"priority": priority, "resourceSelectors": [JOB | selector for selector in selectors or ({},)]},
    }


def cluster_policy(name, *selectors, **options):
    return policy(name, *selectors, kind="ClusterPropagationPolicy", **options)


def claimed_by(owner):
    return with_claim(TEMPLATE, Claim.of(owner))


@pytest.mark.parametrize(
    ("policies", "chosen"),
    [
        pytest.param([policy("a"), policy("b", priority=1)], "b", id="explicit-priority-first"),
        pytest.param([policy("a", BY_LABEL), policy("b", BY_NAME)], "b", id="then-a-name"),
        pytest.param([policy("a"), policy("b", BY_LABEL)], "b", id="then-labels"),
        pytest.param([policy("b"), policy("a")], "a", id="then-the-name-of-the-policy"),
        pytest.param([cluster_policy("a", BY_NAME, priority=9), policy("b")], "b", id="namespaced-before-cluster"),
        pytest.param([cluster_policy("a")], "a", id="cluster-policy"),
        pytest.param([policy("a", namespace="team-b")], None, id="another-namespace"),
        pytest.param([policy("a", {"kind": "Queue"})], None, id="another-kind"),
        pytest.param([policy("a", {"name": "x"}, BY_LABEL)], "a", id="any-selector-is-enough"),
        pytest.param([policy("a", {"name": "x", **BY_LABEL})], None, id="labels-beside-a-name-do-not-count"),
        pytest.param([cluster_policy("a", {"namespace": "team-b"})], None, id="selector-of-another-namespace"),
        pytest.param([policy("a", deletionTimestamp="now"), policy("b")], "b", id="policy-being-deleted"),
    ],
)
def test_the_best_policy_is_chosen(policies, chosen):
    best = policy_of(TEMPLATE, policies)
    assert (best["metadata"]["name"] if best else None) == chosen


def test_claimed_template_stays_while_its_policy_selects_it():
    first, gone, other = policy("first"), policy("gone", {"name": "x"}), policy("other", BY_NAME, priority=9)
    assert policy_of(claimed_by(first), [other, first]) is first
    assert selects_or_claims(gone, claimed_by(gone))
    assert policy_of(claimed_by(gone), [gone, other]) is other


@pytest.mark.parametrize(
    ("selector", "priority", "preemption", "chosen"),
    [
        pytest.param(BY_NAME, 1, "Always", "other", id="higher-priority-and-name"),
        pytest.param(BY_NAME, 1, "Never", "first", id="without-preemption"),
        pytest.param(BY_NAME, 0, "Always", "first", id="equal-priority"),
        pytest.param(BY_LABEL, 1, "Always", "first", id="labels-only"),
    ],
)
def test_policy_preempts_another_for_a_template_that_it_names(selector, priority, preemption, chosen):
    first, other = policy("first"), policy("other", selector, priority=priority)
    other["spec"]["preemption"] = preemption
    assert policy_of(claimed_by(first), [first, other])["metadata"]["name"] == chosen


def test_template_is_lost_with_its_policy():
    first, other = policy("first"), policy("other")
    assert not is_lost(claimed_by(first), [first, other])
    assert is_lost(claimed_by(first), [policy("first", {"name": "x"}), other])
    assert is_lost(claimed_by(first), [other])
    assert not is_lost(TEMPLATE, [])


def test_claim_is_replaced_and_released():
    held = with_claim(claimed_by(cluster_policy("all")), Claim.of(policy("own")))
    assert held["metadata"]["labels"] == {"team": "a", names.POLICY_ID: "id-of-own"}
    assert held["metadata"]["annotations"] == {names.POLICY_NAME: "own", names.POLICY_NAMESPACE: "team-a"}
    assert is_claimed(held)
    assert without_claim(held) == TEMPLATE
