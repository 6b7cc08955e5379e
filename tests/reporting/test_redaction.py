import pytest

from controller.engine.reasons import ADVANCE_RESERVATION, Reason, Refusal
from controller.reporting.messages import pending_message
from controller.reporting.redaction import (
    ANOTHER_WORKLOAD,
    redacted_message,
    redacted_path,
    redacted_refusal,
    same_namespace,
)


@pytest.mark.parametrize("reason", [Reason.BLOCKED_BY_RESERVATION, Reason.BLOCKED_BY_QUEUE_HEAD])
def test_workload_of_another_namespace_is_not_named(reason):
    refusal = Refusal(reason, queue="shared", subject="Job secret/train")
    assert redacted_refusal(refusal, same_namespace("ml")).subject == ANOTHER_WORKLOAD
    assert redacted_refusal(refusal, same_namespace("secret")) == refusal


@pytest.mark.parametrize("path", ["Job secret/train", "ClusterThing train", "", "Job", "Job mlx/train"])
def test_path_without_access_is_replaced(path):
    assert redacted_path(path, same_namespace("ml")) == ANOTHER_WORKLOAD
    assert redacted_path(path, same_namespace("")) == ANOTHER_WORKLOAD


def test_other_facts_of_a_reason_are_shown():
    refusal = Refusal(Reason.QUEUE_NOT_ALLOWED, queue="q", subject="ml")
    assert redacted_refusal(refusal, same_namespace("other")) == refusal


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(Reason.BLOCKED_BY_RESERVATION, cluster="m1", subject=f"{ADVANCE_RESERVATION}board-demo"),
        Refusal(Reason.BLOCKED_BY_RESERVATION, "cpu", 8000, 4000, cluster="m1", subject=f"{ADVANCE_RESERVATION}cpu"),
        Refusal(Reason.BLOCKED_BY_RESERVATION, cluster="m1", subject="Job secret/train"),
        Refusal(Reason.BLOCKED_BY_QUEUE_HEAD, queue="shared", subject="Job secret/train"),
        Refusal(Reason.HYPERJOB_DOES_NOT_FIT, "cpu", 8000, 4000, subject="Job secret/train (InsufficientCapacity)"),
    ],
    ids=["clusters-reserved", "amounts-reserved", "reservation", "queue-head", "hyperjob"],
)
def test_recorded_message_is_redacted_as_its_refusal(refusal):
    recorded = pending_message(refusal)
    tenant = same_namespace("ml")
    expected = pending_message(redacted_refusal(refusal, tenant))
    assert redacted_message(refusal.reason, refusal.subject, recorded, tenant) == expected != recorded
    assert redacted_message(refusal.reason, refusal.subject, recorded, lambda _: True) == recorded
