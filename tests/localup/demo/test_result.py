from dataclasses import replace

import pytest

from controller.engine.reasons import Reason
from localup.demo.result import evaluate
from localup.demo.timeline import PendingReason, Timeline


def judged(timeline, violations=(), hyperjobs=()):
    return evaluate(timeline.jobs.values(), hyperjobs, violations)


@pytest.fixture
def timeline(demo_job):
    timeline = Timeline()
    timeline.on_submitted(demo_job, 0.0)
    return timeline


def test_what_has_run_is_no_trouble(timeline, admitted):
    timeline.on_binding(admitted(phase="Completed", pods=2), 1.0)
    verdict = judged(timeline)
    assert verdict.problems == []
    assert verdict.ran == 1


def test_what_waits_for_ever_as_it_should_is_no_trouble(demo_job, binding_status):
    timeline = Timeline()
    timeline.on_submitted(replace(demo_job, expected_reason=Reason.QUEUE_CLOSED), 0.0)
    timeline.on_binding(binding_status(), 1.0)
    timeline.on_pending_reason(PendingReason(demo_job.name, "QueueClosed", ""), 1.0)
    verdict = judged(timeline)
    assert verdict.problems == []
    assert [progress.spec.name for progress in verdict.inadmissible] == [demo_job.name]


@pytest.mark.parametrize(
    ("stage", "told"),
    [
        pytest.param("submitted", ("has no binding", "karmada"), id="no-binding"),
        pytest.param("suspended", ("is paused, and the controller says nothing of it", "controller"), id="silence"),
        pytest.param("pending", ("waits as InsufficientCapacity: full", "controller"), id="starved"),
        pytest.param("admitted", ("was admitted to member1 and does not start", "karmada"), id="not-started"),
        pytest.param("running", ("runs on member1 and does not end", "karmada"), id="not-ended"),
    ],
)
def test_where_a_job_is_stuck_says_whose_log_to_read(timeline, binding_status, admitted, stage, told):
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
    verdict = judged(timeline)
    text, suspect = told
    assert [(problem.text, problem.log_name) for problem in verdict.problems] == [(f"team-a/train {text}", suspect)]
    assert verdict.logs_to_check == [suspect]


def test_who_should_wait_and_has_run_is_trouble(demo_job, admitted):
    timeline = Timeline()
    timeline.on_submitted(replace(demo_job, expected_reason=Reason.EXCEEDS_EVERY_CLUSTER), 0.0)
    timeline.on_binding(admitted(phase="Completed", pods=2), 1.0)
    assert [problem.text for problem in judged(timeline).problems] == [
        "team-a/train has run, although it should wait as ExceedsEveryCluster"
    ]


def test_who_waits_for_another_reason_than_he_should_is_trouble(demo_job, binding_status):
    timeline = Timeline()
    timeline.on_submitted(replace(demo_job, expected_reason=Reason.QUEUE_CLOSED), 0.0)
    timeline.on_binding(binding_status(), 1.0)
    timeline.on_pending_reason(PendingReason(demo_job.name, "InsufficientCapacity", "full"), 1.0)
    assert [problem.text for problem in judged(timeline).problems] == [
        "team-a/train waits as InsufficientCapacity instead of QueueClosed: full"
    ]


def test_what_was_seen_broken_is_trouble_once(timeline, admitted):
    timeline.on_binding(admitted(phase="Completed", pods=2), 1.0)
    verdict = judged(timeline, ["a was stored unpaused", "queue q held 5 cpu of 4", "queue q held 5 cpu of 4"])
    assert [problem.log_name for problem in verdict.problems] == ["webhook", "controller"]
