"""Selection of the policy that propagates a template."""

import pytest

from localup.karmada import objects as names
from localup.karmada.detector import Claim, is_claimed, policy_of, selects_or_claims, with_claim, without_claim


def template(*, labels=None, annotations=None):
    metadata = {"name": "train", "namespace": "team-a", "labels": labels or {}, "annotations": annotations or {}}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata}


def policy(name, *selectors, kind="PropagationPolicy", namespace="team-a", priority=0, **metadata):
    jobs = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    place = {} if kind.startswith("Cluster") else {"namespace": namespace}
    label = names.CLUSTER_POLICY_ID if kind.startswith("Cluster") else names.POLICY_ID
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "labels": {label: f"id-of-{name}"}, **place, **metadata},
        "spec": {"priority": priority, "resourceSelectors": [jobs | selector for selector in selectors or ({},)]},
    }


def cluster_policy(name, *selectors, **options):
    return policy(name, *selectors, kind="ClusterPropagationPolicy", **options)


BY_NAME = {"name": "train"}
BY_LABEL = {"labelSelector": {"matchLabels": {"team": "a"}}}


@pytest.mark.parametrize(
    ("policies", "chosen"),
    [
        pytest.param([policy("a"), policy("b", priority=1)], "b", id="the-explicit-priority-counts-first"),
        pytest.param([policy("a", BY_LABEL), policy("b", BY_NAME)], "b", id="then-a-name"),
        pytest.param([policy("a"), policy("b", BY_LABEL)], "b", id="then-labels"),
        pytest.param([policy("b"), policy("a")], "a", id="then-the-policy's-own-name"),
        pytest.param([cluster_policy("a", BY_NAME, priority=9), policy("b")], "b", id="the-namespace's-come-before"),
        pytest.param([cluster_policy("a")], "a", id="the-control-plane's-come-after"),
        pytest.param([policy("a", namespace="team-b")], None, id="other-namespaces'-do-not-count"),
        pytest.param([policy("a", {"kind": "Queue"})], None, id="other-kinds-are-not-selected"),
        pytest.param([policy("a", {"name": "x"}, BY_LABEL)], "a", id="any-selector-is-enough"),
        pytest.param([policy("a", {"name": "x", **BY_LABEL})], None, id="beside-a-name-labels-do-not-count"),
        pytest.param([cluster_policy("a", {"namespace": "team-b"})], None, id="selectors-may-name-a-namespace"),
        pytest.param([policy("a", deletionTimestamp="now"), policy("b")], "b", id="one-that-leaves-is-passed-over"),
    ],
)
def test_the_best_policy_is_chosen(policies, chosen):
    found = policy_of(template(labels={"team": "a"}), policies)
    assert (found["metadata"]["name"] if found else None) == chosen


def test_a_claimed_template_stays_with_its_policy():
    first = policy("first")
    assert policy_of(with_claim(template(), Claim.of(first)), [policy("later", BY_NAME, priority=9), first]) is first


def test_policy_that_stops_selecting_loses_its_template():
    gone, other = policy("gone", {"name": "x"}), policy("other")
    held = with_claim(template(), Claim.of(gone))
    assert selects_or_claims(gone, held)
    assert policy_of(held, [gone, other]) is other


def test_new_claim_replaces_the_old_one():
    held = with_claim(
        with_claim(template(labels={"team": "a"}), Claim.of(cluster_policy("all"))), Claim.of(policy("own"))
    )
    assert held["metadata"]["labels"] == {"team": "a", names.POLICY_ID: "id-of-own"}
    assert held["metadata"]["annotations"] == {names.POLICY_NAME: "own", names.POLICY_NAMESPACE: "team-a"}


def test_released_template_has_no_claim():
    held = with_claim(template(labels={"team": "a"}), Claim.of(policy("own")))
    assert is_claimed(held)
    assert without_claim(held)["metadata"] == {"name": "train", "namespace": "team-a", "labels": {"team": "a"}}
