from typing import Any

import pytest

from controller.controllers.status_cleanup.stale_status import binding_status_patch, job_status_patch

META = {"metadata": {"uid": "u", "resourceVersion": "7", "name": "train"}}


def job(**status: Any) -> dict[str, Any]:
    return {**META, "status": status}


def test_running_status_is_corrected_to_pending():
    patch = job_status_patch(job(state={"phase": "Running"}, running=3, minAvailable=3, retryCount=1), 0)
    assert patch is not None
    assert patch["metadata"] == {"uid": "u", "resourceVersion": "7"}
    state = patch["status"]["state"]
    assert (state["phase"], state["reason"], state["lastTransitionTime"]) == (
        "Pending",
        "Evicted",
        "1970-01-01T00:00:00Z",
    )
    assert patch["status"]["running"] == 0
    assert "retryCount" not in patch["status"]


@pytest.mark.parametrize(
    "status", [{}, {"state": {"phase": "Pending"}}, {"state": None}, {"pending": 0}, {"state": []}]
)
def test_correct_status_is_unchanged(status):
    assert job_status_patch(job(**status), 0) is None
    assert job_status_patch(META, 0) is None


def test_phase_of_wrong_type_is_ignored():
    assert job_status_patch(job(state={"phase": []}), 0) is not None


def test_only_scheduled_condition_is_corrected():
    scheduled = {"type": "Scheduled", "status": "True", "reason": "Success", "message": "well"}
    applied = {"type": "FullyApplied", "status": "False", "reason": "FullyAppliedFailed"}
    patch = binding_status_patch({**META, "status": {"conditions": [scheduled, applied]}}, 0)
    assert patch is not None
    first, second = patch["status"]["conditions"]
    assert (first["type"], first["status"], first["reason"]) == ("Scheduled", "False", "Evicted")
    assert second == applied


@pytest.mark.parametrize(
    "status",
    [
        None,
        {},
        [],
        {"conditions": "none"},
        {"conditions": ["odd"]},
        {"conditions": [{"type": "Scheduled", "status": "False"}]},
    ],
)
def test_unscheduled_condition_is_unchanged(status):
    assert binding_status_patch({**META, "status": status}, 0) is None
