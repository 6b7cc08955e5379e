"""Queues and PriorityClasses that each tenant may use."""

from dataclasses import replace

import pytest

from controller.engine.policy import Policy, Tenant
from controller.engine.reasons import Reason
from controller.engine.state.hierarchy import QueueName


def tenants(*entries: Tenant) -> Policy:
    return Policy(tenants=entries)


A = Tenant(("team-a-*",), queues=("a", "shared-*"), priority_classes=("normal",))
A_HIGH = Tenant(("team-a-prod",), priority_classes=("high",))
B = Tenant(("team-b", "team-c"), queues=("b",))


@pytest.mark.parametrize(
    ("namespace", "queue", "priority_class", "reason"),
    [
        pytest.param("other", "a", "high", None, id="no-entry-matches"),
        pytest.param("team-a-dev", "shared-gpu", "normal", None, id="by-a-pattern"),
        pytest.param("team-a-dev", "b", "high", Reason.QUEUE_NOT_ALLOWED, id="queue-before-class"),
        pytest.param("team-a-prod", "a", "high", None, id="several-entries-add-up"),
        pytest.param(
            "team-a-prod", "b", "normal", Reason.PRIORITY_CLASS_NOT_ALLOWED, id="but-for-its-own-classes-only"
        ),
        pytest.param("Team-B", "a", "", None, id="case-sensitive"),
        pytest.param("team-a-dev", "a", "", None, id="no-class-at-all"),
    ],
)
def test_tenant_entries_of_a_namespace_are_combined(
    namespace: str, queue: str, priority_class: str, reason: Reason | None
):
    refusal = tenants(A, A_HIGH, B).refusal(namespace, QueueName(queue), priority_class)
    assert (refusal.reason if refusal else None) == reason
    if reason is Reason.QUEUE_NOT_ALLOWED:
        assert (refusal.queue, refusal.subject) == (queue, namespace)


def test_priority_classes_of_pods_must_be_allowed_too():
    """In member clusters the pod's class decides preemption."""
    policy = tenants(A, A_HIGH, B)
    refusal = policy.refusal("team-a-dev", QueueName("a"), "normal", "high")
    assert refusal is not None
    assert (refusal.reason, refusal.subject) == (Reason.PRIORITY_CLASS_NOT_ALLOWED, "high")
    assert policy.refusal("team-a-prod", QueueName("a"), "normal", "high") is None


@pytest.mark.parametrize("entries", [(), (A,)])
def test_namespaces_without_a_tenant_entry_can_be_denied(entries):
    policy = replace(tenants(*entries), deny_unmatched=True)
    refusal = policy.refusal("other", QueueName("a"), "")
    assert refusal is not None
    assert refusal.reason is Reason.QUEUE_NOT_ALLOWED
    assert (policy.refusal("team-a-dev", QueueName("a"), "normal") is None) == bool(entries)
