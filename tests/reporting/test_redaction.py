import pytest

from controller.engine.reasons import Reason, Refusal
from controller.reporting.redaction import ANOTHER_WORKLOAD, redacted_path, redacted_refusal, same_namespace


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
