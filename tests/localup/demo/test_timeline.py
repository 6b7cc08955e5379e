from dataclasses import replace

import pytest

from controller.engine.reasons import Reason
from localup.demo.progress import JobStage, PendingReason, PendingReasonReader, Timeline, parse_pending_reason

INSUFFICIENT_CAPACITY = PendingReason("team-a/train", "InsufficientCapacity", "no candidate cluster has room now")


@pytest.fixture
def timeline(demo_job):
    timeline = Timeline()
    timeline.on_submitted(demo_job, 0.0)
    return timeline


def as_tuples(lines):
    return [(line.at, line.stage, line.text) for line in lines]


def test_each_job_stage_gets_an_entry(timeline, binding_status, admitted):
    assert as_tuples(timeline.on_binding(binding_status(), 1.0)) == [
        (1.0, JobStage.SUSPENDED, "queue team-a: 4 cpu, 8Gi memory")
    ]
    assert as_tuples(timeline.on_pending_reason(INSUFFICIENT_CAPACITY, 1.5)) == [
        (1.5, JobStage.PENDING, "InsufficientCapacity: no candidate cluster has room now")
    ]
    assert as_tuples(timeline.on_binding(admitted(), 3.0)) == [(3.0, JobStage.ADMITTED, "to member1 after 2.0 s")]
    assert as_tuples(timeline.on_binding(admitted(phase="Running", pods=2), 3.5)) == [
        (3.5, JobStage.RUNNING, "on member1, 2 pods")
    ]
    assert as_tuples(timeline.on_binding(admitted(phase="Completed", pods=2), 7.5)) == [
        (7.5, JobStage.FINISHED, "Completed after 4.0 s")
    ]
    assert timeline.is_over


def test_unchanged_status_gets_no_second_entry(timeline, binding_status):
    assert timeline.on_binding(binding_status(), 1.0)
    assert timeline.on_binding(binding_status(), 2.0) == []


def test_skipped_stages_get_entries(timeline, admitted):
    stages = [line.stage for line in timeline.on_binding(admitted(phase="Completed", pods=2), 1.0)]
    assert stages == [JobStage.SUSPENDED, JobStage.ADMITTED, JobStage.RUNNING, JobStage.FINISHED]


def test_reason_before_suspension_follows_it(timeline, binding_status):
    assert timeline.on_pending_reason(INSUFFICIENT_CAPACITY, 0.5) == []
    assert [line.stage for line in timeline.on_binding(binding_status(), 1.0)] == [JobStage.SUSPENDED, JobStage.PENDING]


def test_changed_reason_gets_an_entry(timeline, binding_status):
    timeline.on_binding(binding_status(), 1.0)
    timeline.on_pending_reason(INSUFFICIENT_CAPACITY, 1.0)
    closed = replace(INSUFFICIENT_CAPACITY, reason="QueueClosed")
    assert [line.text for line in timeline.on_pending_reason(closed, 2.0)] == [
        "QueueClosed: no candidate cluster has room now"
    ]


def test_reason_after_admission_is_ignored(timeline, binding_status, admitted):
    timeline.on_binding(binding_status(), 1.0)
    timeline.on_binding(admitted(), 2.0)
    assert timeline.on_pending_reason(INSUFFICIENT_CAPACITY, 2.1) == []


@pytest.mark.parametrize(
    ("expected", "reason", "is_over"),
    [
        pytest.param(Reason.QUEUE_CLOSED, "QueueClosed", True, id="as-expected"),
        pytest.param(Reason.QUEUE_CLOSED, "InsufficientCapacity", False, id="for-another-reason"),
        pytest.param(None, "QueueClosed", False, id="not-expected"),
    ],
)
def test_is_over_when_job_is_pending_for_expected_reason(demo_job, binding_status, expected, reason, is_over):
    timeline = Timeline()
    timeline.on_submitted(replace(demo_job, expected_reason=expected), 0.0)
    timeline.on_binding(binding_status(), 0.1)
    timeline.on_pending_reason(replace(INSUFFICIENT_CAPACITY, reason=reason), 0.2)
    assert timeline.is_over is is_over


def test_unknown_jobs_get_no_entries(binding_status):
    assert Timeline().on_binding(binding_status(), 1.0) == []
    assert Timeline().on_pending_reason(INSUFFICIENT_CAPACITY, 1.0) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        pytest.param(
            b'{"event": "workload pending", "workload": "Job team-a/train",'
            b' "reason": "InsufficientCapacity", "message": "m"}\n',
            PendingReason("team-a/train", "InsufficientCapacity", "m"),
            id="pending",
        ),
        pytest.param(b'{"event": "workload admitted", "workload": "Job team-a/train"}\n', None, id="another-event"),
        pytest.param(b"Traceback (most recent call last):\n", None, id="no-json"),
        pytest.param(b"[]\n", None, id="no-object"),
    ],
)
def test_pending_reason_is_parsed_from_the_log(line, found):
    assert parse_pending_reason(line) == found


def test_log_reader_resumes_after_the_last_complete_line(tmp_path):
    log = tmp_path / "log"
    reader = PendingReasonReader(log)
    assert list(reader.read_new()) == []
    line = '{"event": "workload pending", "workload": "Job a/%s", "reason": "InsufficientCapacity", "message": ""}\n'
    log.write_text(line % "x" + (line % "y")[:20])
    assert [pending_reason.job for pending_reason in reader.read_new()] == ["a/x"]
    assert list(reader.read_new()) == []
    log.write_text(line % "x" + line % "y")
    assert [pending_reason.job for pending_reason in reader.read_new()] == ["a/y"]


def test_evicted_job_restarts_its_stages(timeline, binding_status, admitted):
    timeline.on_binding(admitted(phase="Running", pods=2), 1.0)
    stale = binding_status(phase="Running", pods=2)
    assert as_tuples(timeline.on_binding(stale, 2.0)) == [
        (2.0, JobStage.EVICTED, "evicted; it is pending again and keeps its age")
    ]
    assert [line.stage for line in timeline.on_pending_reason(INSUFFICIENT_CAPACITY, 2.1)] == [JobStage.PENDING]
    assert timeline.on_pending_reason(INSUFFICIENT_CAPACITY, 2.2) == []
    lines = timeline.on_binding(admitted(phase="Completed", pods=2), 6.0)
    assert [line.stage for line in lines] == [JobStage.ADMITTED, JobStage.RUNNING, JobStage.FINISHED]
    (progress,) = timeline.jobs.values()
    assert (progress.evictions, progress.waited, progress.stage) == (1, 5.0, JobStage.FINISHED)


@pytest.mark.parametrize(("reason", "is_over"), [("PreemptionInProgress", True), ("InsufficientCapacity", False)])
def test_reclaiming_job_must_have_waited_for_evictions(demo_job, binding_status, admitted, reason, is_over):
    timeline = Timeline()
    timeline.on_submitted(replace(demo_job, reclaims=True), 0.0)
    timeline.on_binding(binding_status(), 0.1)
    timeline.on_pending_reason(replace(INSUFFICIENT_CAPACITY, reason=reason), 0.2)
    timeline.on_binding(admitted(phase="Completed", pods=2), 1.0)
    assert timeline.is_over is is_over


def test_reason_read_after_the_end_still_counts(demo_job, admitted):
    timeline = Timeline()
    timeline.on_submitted(replace(demo_job, reclaims=True), 0.0)
    timeline.on_binding(admitted(phase="Completed", pods=2), 1.0)
    assert not timeline.is_over
    assert timeline.on_pending_reason(replace(INSUFFICIENT_CAPACITY, reason="PreemptionInProgress"), 1.1) == []
    assert timeline.is_over
