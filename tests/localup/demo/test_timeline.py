from dataclasses import replace

import pytest

from controller.engine.reasons import Reason
from localup.demo.log_reader import PendingReasonReader, parse_pending_reason
from localup.demo.timeline import JobStage, PendingReason, Timeline

INSUFFICIENT_CAPACITY = PendingReason("team-a/train", "InsufficientCapacity", "no candidate cluster has room now")


@pytest.fixture
def story(role):
    story = Timeline()
    story.submitted(role, 0.0)
    return story


def told(lines):
    return [(line.at, line.stage, line.words) for line in lines]


def test_a_job_is_told_step_by_step(story, sighting, admitted):
    assert told(story.saw(sighting(), 1.0)) == [(1.0, JobStage.PAUSED, "queue team-a: 4 cpu, 8Gi memory")]
    assert told(story.heard(INSUFFICIENT_CAPACITY, 1.5)) == [
        (1.5, JobStage.WAITING, "InsufficientCapacity: no candidate cluster has room now")
    ]
    assert told(story.saw(admitted(), 3.0)) == [(3.0, JobStage.ADMITTED, "to member1 after 2.0 s")]
    assert told(story.saw(admitted(phase="Running", pods=2), 3.5)) == [(3.5, JobStage.RUNNING, "on member1, 2 pods")]
    assert told(story.saw(admitted(phase="Completed", pods=2), 7.5)) == [
        (7.5, JobStage.FINISHED, "Completed after 4.0 s")
    ]
    assert story.is_over


def test_the_same_sight_is_told_once(story, sighting):
    assert story.saw(sighting(), 1.0)
    assert story.saw(sighting(version=2), 2.0) == []


def test_steps_that_were_not_seen_are_told_all_the_same(story, admitted):
    stages = [line.stage for line in story.saw(admitted(phase="Completed", pods=2), 1.0)]
    assert stages == [JobStage.PAUSED, JobStage.ADMITTED, JobStage.RUNNING, JobStage.FINISHED]


def test_a_reason_that_comes_before_the_pause_is_told_after_it(story, sighting):
    assert story.heard(INSUFFICIENT_CAPACITY, 0.5) == []
    assert [line.stage for line in story.saw(sighting(), 1.0)] == [JobStage.PAUSED, JobStage.WAITING]


def test_a_new_reason_is_told_again(story, sighting):
    story.saw(sighting(), 1.0)
    story.heard(INSUFFICIENT_CAPACITY, 1.0)
    closed = replace(INSUFFICIENT_CAPACITY, reason="QueueClosed")
    assert [line.words for line in story.heard(closed, 2.0)] == ["QueueClosed: no candidate cluster has room now"]


def test_a_reason_that_comes_after_the_admission_is_old(story, sighting, admitted):
    story.saw(sighting(), 1.0)
    story.saw(admitted(), 2.0)
    assert story.heard(INSUFFICIENT_CAPACITY, 2.1) == []


@pytest.mark.parametrize(
    ("forever", "reason", "is_over"),
    [
        pytest.param(Reason.QUEUE_CLOSED, "QueueClosed", True, id="as-expected"),
        pytest.param(Reason.QUEUE_CLOSED, "InsufficientCapacity", False, id="for-another-reason"),
        pytest.param(None, "QueueClosed", False, id="not-expected"),
    ],
)
def test_it_is_over_when_who_waits_for_ever_waits_for_the_expected_reason(role, sighting, forever, reason, is_over):
    story = Timeline()
    story.submitted(replace(role, forever=forever), 0.0)
    story.saw(sighting(), 0.1)
    story.heard(replace(INSUFFICIENT_CAPACITY, reason=reason), 0.2)
    assert story.is_over is is_over


def test_jobs_that_nobody_submitted_here_are_not_told(sighting):
    assert Timeline().saw(sighting(), 1.0) == []
    assert Timeline().heard(INSUFFICIENT_CAPACITY, 1.0) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        pytest.param(
            b'{"event": "workload pending", "workload": "Job team-a/train",'
            b' "reason": "InsufficientCapacity", "message": "m"}\n',
            PendingReason("team-a/train", "InsufficientCapacity", "m"),
            id="waits",
        ),
        pytest.param(b'{"event": "workload admitted", "workload": "Job team-a/train"}\n', None, id="another-event"),
        pytest.param(b"Traceback (most recent call last):\n", None, id="no-json"),
        pytest.param(b"[]\n", None, id="no-object"),
    ],
)
def test_the_log_tells_why_somebody_waits(line, found):
    assert parse_pending_reason(line) == found


def test_the_log_is_read_on_from_the_last_whole_line(tmp_path):
    log = tmp_path / "log"
    gossip = PendingReasonReader(log)
    assert list(gossip.news()) == []
    line = '{"event": "workload pending", "workload": "Job a/%s", "reason": "InsufficientCapacity", "message": ""}\n'
    log.write_text(line % "x" + (line % "y")[:20])
    assert [complaint.job for complaint in gossip.news()] == ["a/x"]
    assert list(gossip.news()) == []
    log.write_text(line % "x" + line % "y")
    assert [complaint.job for complaint in gossip.news()] == ["a/y"]


def test_who_has_to_go_begins_anew(story, sighting, admitted):
    story.saw(admitted(phase="Running", pods=2), 1.0)
    stale = sighting(phase="Running", pods=2)
    assert told(story.saw(stale, 2.0)) == [
        (2.0, JobStage.EVICTED, "it has to go, and waits again with the age that it had")
    ]
    assert [line.stage for line in story.heard(INSUFFICIENT_CAPACITY, 2.1)] == [JobStage.WAITING]
    assert story.heard(INSUFFICIENT_CAPACITY, 2.2) == []
    lines = story.saw(admitted(phase="Completed", pods=2), 6.0)
    assert [line.stage for line in lines] == [JobStage.ADMITTED, JobStage.RUNNING, JobStage.FINISHED]
    (way,) = story.ways.values()
    assert (way.evictions, way.waited, way.stage) == (1, 5.0, JobStage.FINISHED)


@pytest.mark.parametrize(("reason", "is_over"), [("PreemptionInProgress", True), ("InsufficientCapacity", False)])
def test_who_reclaims_must_have_waited_for_others_to_go(role, sighting, admitted, reason, is_over):
    story = Timeline()
    story.submitted(replace(role, reclaims=True), 0.0)
    story.saw(sighting(), 0.1)
    story.heard(replace(INSUFFICIENT_CAPACITY, reason=reason), 0.2)
    story.saw(admitted(phase="Completed", pods=2), 1.0)
    assert story.is_over is is_over


def test_a_reason_that_is_read_too_late_counts_all_the_same(role, admitted):
    story = Timeline()
    story.submitted(replace(role, reclaims=True), 0.0)
    story.saw(admitted(phase="Completed", pods=2), 1.0)
    assert not story.is_over
    assert story.heard(replace(INSUFFICIENT_CAPACITY, reason="PreemptionInProgress"), 1.1) == []
    assert story.is_over
