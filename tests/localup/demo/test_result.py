from dataclasses import replace

import pytest

from controller.engine.reasons import Reason
from localup.demo.progress import PendingReason, Timeline, evaluate


def result_of(timeline, hyperjobs=()):
    return evaluate(timeline.jobs.values(), hyperjobs)


@pytest.fixture
def timeline(demo_job):
    timeline = Timeline()
    timeline.on_submitted(demo_job, 0.0)
    return timeline


def test_finished_job_is_no_problem(timeline, admitted):
    timeline.on_binding(admitted(phase="Completed", pods=2), 1.0)
    result = result_of(timeline)
    assert result.problems == []
    assert result.ran == 1


def test_job_pending_for_expected_reason_is_no_problem(demo_job, binding_status):
    timeline = Timeline()
    timeline.on_submitted(replace(demo_job, expected_reason=Reason.QUEUE_CLOSED), 0.0)
    timeline.on_binding(binding_status(), 1.0)
    timeline.on_pending_reason(PendingReason(demo_job.name, "QueueClosed", ""), 1.0)
    result = result_of(timeline)
    assert result.problems == []
    assert [progress.spec.name for progress in result.inadmissible] == [demo_job.name]


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        pytest.param("submitted", ("has no binding", "karmada"), id="no-binding"),
        pytest.param(
            "suspended", ("is suspended, and the controller reports no pending reason", "controller"), id="silence"
        ),
        pytest.param("pending", ("is pending as InsufficientCapacity: full", "controller"), id="starved"),
        pytest.param("admitted", ("was admitted to member1 but does not start", "karmada"), id="not-started"),
        pytest.param("running", ("runs on member1 but does not end", "karmada"), id="not-ended"),
    ],
)
def test_stuck_job_names_the_log_to_check(timeline, binding_status, admitted, stage, expected):
    seen = {
        "suspended": [binding_status()],
        "pending": [binding_status()],
        "admitted": [admitted()],
        "running": [admitted(phase="Running", pods=2)],
    }
    for item in seen.get(stage, ()):
        timeline.on_binding(item, 1.0)
    if stage == "pending":
        timeline.on_pending_reason(PendingReason("team-a/train", "InsufficientCapacity", "full"), 1.0)
    result = result_of(timeline)
    text, log_name = expected
    assert [(problem.text, problem.log_name) for problem in result.problems] == [(f"team-a/train {text}", log_name)]
    assert result.logs_to_check == [log_name]


def test_inadmissible_job_that_ran_is_a_problem(demo_job, admitted):
    timeline = Timeline()
    timeline.on_submitted(replace(demo_job, expected_reason=Reason.EXCEEDS_EVERY_CLUSTER), 0.0)
    timeline.on_binding(admitted(phase="Completed", pods=2), 1.0)
    assert [problem.text for problem in result_of(timeline).problems] == [
        "team-a/train ran although it should stay pending as ExceedsEveryCluster"
    ]


def test_unexpected_pending_reason_is_a_problem(demo_job, binding_status):
    timeline = Timeline()
    timeline.on_submitted(replace(demo_job, expected_reason=Reason.QUEUE_CLOSED), 0.0)
    timeline.on_binding(binding_status(), 1.0)
    timeline.on_pending_reason(PendingReason(demo_job.name, "InsufficientCapacity", "full"), 1.0)
    assert [problem.text for problem in result_of(timeline).problems] == [
        "team-a/train is pending as InsufficientCapacity instead of QueueClosed: full"
    ]
