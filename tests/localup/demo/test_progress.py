"""Timeline entries and results of the demo; `test_command` runs whole demos."""

from dataclasses import replace

import pytest

from controller.engine.reasons import Reason
from localup.demo.progress import (
    BindingStatus,
    HyperJobTracker,
    PendingReason,
    PendingReasonReader,
    Timeline,
    evaluate,
)
from localup.demo.scenario import DemoHyperJob, DemoJob, scenario_steps, volcano_job

NAME = "team-a/train"
JOB = DemoJob(volcano_job(NAME, "team-a", pods=2, cpu=2, memory="4Gi", runtime="4s"))
SUSPENDED = BindingStatus(NAME, suspended=True, clusters=(), phase="", pods=0)
ADMITTED = replace(SUSPENDED, suspended=False, clusters=("member1",))
RUNNING = replace(ADMITTED, phase="Running", pods=2)
EVICTED = replace(RUNNING, suspended=True, clusters=())
COMPLETED = replace(RUNNING, phase="Completed")
FULL = PendingReason(NAME, "InsufficientCapacity", "full")
CLOSED = PendingReason(NAME, "QueueClosed", "closed")
PREEMPTION = PendingReason(NAME, "PreemptionInProgress", "")


def followed(job, *changes):
    """Return the timeline after *changes*, one each second, and its entries as text."""
    timeline = Timeline()
    timeline.on_submitted(job, 0)
    entries = []
    for at, change in enumerate(changes, start=1):
        on_change = timeline.on_pending_reason if isinstance(change, PendingReason) else timeline.on_binding
        entries += on_change(change, at)
    return timeline, [f"{entry.at} {entry.stage}: {entry.text}" for entry in entries]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            (SUSPENDED, SUSPENDED, FULL, FULL, CLOSED, ADMITTED, RUNNING, COMPLETED),
            [
                "1 suspended: queue team-a: 4 cpu, 8Gi memory",
                "3 pending: InsufficientCapacity: full",
                "5 pending: QueueClosed: closed",
                "6 admitted: to member1 after 5.0 s",
                "7 running: on member1, 2 pods",
                "8 finished: Completed after 1.0 s",
            ],
            id="each-change",
        ),
        pytest.param(
            (COMPLETED,),
            [
                "1 suspended: queue team-a: 4 cpu, 8Gi memory",
                "1 admitted: to member1 after 0.0 s",
                "1 running: on member1, 2 pods",
                "1 finished: Completed after 0.0 s",
            ],
            id="skipped-stages",
        ),
        pytest.param(
            (FULL, SUSPENDED, ADMITTED, FULL),
            [
                "2 suspended: queue team-a: 4 cpu, 8Gi memory",
                "2 pending: InsufficientCapacity: full",
                "3 admitted: to member1 after 1.0 s",
            ],
            id="reason-before-suspension-and-after-admission",
        ),
        pytest.param(
            (SUSPENDED, RUNNING, EVICTED, FULL, COMPLETED),
            [
                "1 suspended: queue team-a: 4 cpu, 8Gi memory",
                "2 admitted: to member1 after 1.0 s",
                "2 running: on member1, 2 pods",
                "3 evicted: evicted; it is pending again and keeps its age",
                "4 pending: InsufficientCapacity: full",
                "5 admitted: to member1 after 4.0 s",
                "5 running: on member1, 2 pods",
                "5 finished: Completed after 0.0 s",
            ],
            id="evicted-and-admitted-again",
        ),
        pytest.param((replace(SUSPENDED, job="team-a/other"), replace(FULL, job="team-a/other")), [], id="unknown-job"),
    ],
)
def test_each_stage_of_a_job_gets_one_entry(changes, expected):
    assert followed(JOB, *changes)[1] == expected


@pytest.mark.parametrize(
    ("spec", "changes", "problem", "log"),
    [
        pytest.param({}, (COMPLETED,), None, None, id="finished"),
        pytest.param({"expected_reason": Reason.QUEUE_CLOSED}, (SUSPENDED, CLOSED), None, None, id="pending"),
        pytest.param({"reclaims": True}, (SUSPENDED, PREEMPTION, COMPLETED), None, None, id="reclaimed"),
        pytest.param({"reclaims": True}, (COMPLETED, PREEMPTION), None, None, id="reason-read-after-the-end"),
        pytest.param({}, (), "has no binding", "karmada", id="no-binding"),
        pytest.param(
            {},
            (SUSPENDED,),
            "is suspended, and the controller reports no pending reason",
            "controller",
            id="no-reason",
        ),
        pytest.param({}, (SUSPENDED, FULL), "is pending as InsufficientCapacity: full", "controller", id="starved"),
        pytest.param({}, (ADMITTED,), "was admitted to member1 but does not start", "karmada", id="not-started"),
        pytest.param({}, (RUNNING,), "runs on member1 but does not end", "karmada", id="not-ended"),
        pytest.param(
            {"expected_reason": Reason.EXCEEDS_EVERY_CLUSTER},
            (COMPLETED,),
            "ran although it should stay pending as ExceedsEveryCluster",
            "controller",
            id="inadmissible-job-ran",
        ),
        pytest.param(
            {"expected_reason": Reason.QUEUE_CLOSED},
            (SUSPENDED, FULL),
            "is pending as InsufficientCapacity instead of QueueClosed: full",
            "controller",
            id="another-reason",
        ),
        pytest.param(
            {"reclaims": True}, (COMPLETED,), "ran without waiting for evictions", "controller", id="no-eviction"
        ),
    ],
)
def test_job_in_another_state_than_expected_is_a_problem(spec, changes, problem, log):
    timeline, _ = followed(replace(JOB, **spec), *changes)
    result = evaluate(timeline.jobs.values(), ())
    assert timeline.is_over is (problem is None)
    assert [reported.text for reported in result.problems] == ([f"{NAME} {problem}"] if problem else [])
    assert result.logs_to_check == ([log] if log else [])


def test_log_reader_resumes_after_the_last_complete_line(tmp_path):
    log = tmp_path / "log"
    reader = PendingReasonReader(log)
    assert list(reader.read_new()) == []
    other = '{"event": "workload admitted", "workload": "Job a/x"}\nTraceback (most recent call last):\n[]\n'
    line = '{"event": "workload pending", "workload": "Job a/%s", "reason": "QueueClosed", "message": "m"}\n'
    log.write_text(other + line % "x" + (line % "y")[:20])
    assert list(reader.read_new()) == [PendingReason("a/x", "QueueClosed", "m")]
    assert list(reader.read_new()) == []
    log.write_text(other + line % "x" + line % "y")
    assert [pending_reason.job for pending_reason in reader.read_new()] == ["a/y"]


def hyperjob(phase="Pending", *, reason="Pending", message="", parts=2, name="llm"):
    split = {"parts": [{"name": f"llm-t-{number}", "cluster": f"c{number}", "pods": [1, 7]} for number in range(parts)]}
    conditions = [{"type": "Pending", "status": "True" if phase == "Pending" else "False", "reason": reason}]
    status = {"phase": phase, "message": message, "conditions": conditions, "split": split, "clusters": "c0,c1"}
    return {"metadata": {"name": name, "namespace": "ml"}, "status": status}


TOO_LARGE = hyperjob(reason="ExceedsEveryCluster", message="too large", parts=0)
DONE = hyperjob("Completed", message="2 of 2 parts completed")


def tracked(*statuses, plans=()):
    """Return a tracker that saw *statuses*, one each second, and parts admitted in *plans*, and the entries."""
    tracker = HyperJobTracker({"ml/llm": DemoHyperJob({}, Reason.EXCEEDS_EVERY_CLUSTER)})
    entries = [entry for at, status in enumerate(statuses) for entry in tracker.on_hyperjob(status, float(at))]
    for number, plan in enumerate(plans):
        binding = replace(ADMITTED, job=f"ml/llm-t-{number}", plan=plan)
        tracker.on_binding(DemoJob({}, hyperjob="ml/llm"), binding)
    return tracker, [f"{entry.stage}: {entry.text}" for entry in entries]


def test_each_stage_of_a_hyperjob_gets_one_entry():
    running = hyperjob("Running", message="2 of 2 parts run")
    _, entries = tracked(TOO_LARGE, hyperjob(), hyperjob("Admitted"), running, running, DONE)
    assert entries == [
        "pending: ExceedsEveryCluster: too large",
        "split: in 2 parts: c0 8, c1 8",
        "admitted: all 2 parts after 2.0 s",
        "running: 2 of 2 parts run, on c0,c1",
        "finished: Completed: 2 of 2 parts completed",
    ]


@pytest.mark.parametrize(
    ("statuses", "plans", "problem"),
    [
        pytest.param((TOO_LARGE, DONE), ("1", "1"), None, id="as-expected"),
        pytest.param(
            (TOO_LARGE, DONE),
            ("1", "2"),
            "the parts of ml/llm were admitted in 2 plans instead of one",
            id="several-plans",
        ),
        pytest.param(
            (DONE,),
            ("1", "1"),
            "ml/llm was not pending as ExceedsEveryCluster; observed reasons: none",
            id="never-pending",
        ),
        pytest.param(
            (TOO_LARGE,), (), "ml/llm is pending with 0 parts, 0 of them admitted: too large", id="stays-pending"
        ),
        pytest.param((TOO_LARGE, DONE, hyperjob(name="other")), ("1", "1"), None, id="hyperjob-of-a-user"),
    ],
)
def test_hyperjob_in_another_state_than_expected_is_a_problem(statuses, plans, problem):
    tracker, _ = tracked(*statuses, plans=plans)
    assert all(progress.is_settled for progress in tracker.all.values()) is (problem is None)
    assert [reported.text for reported in evaluate([], tracker.all.values()).problems] == ([problem] if problem else [])


def test_example_jobs_are_submitted_unchanged():
    jobs = {job.name: job for step in scenario_steps() for job in step.jobs}
    assert jobs["ml/torchrun-gang"].manifest["spec"]["plugins"]["pytorch"]
    assert jobs["ml/torchrun-gang"].requests == {"nvidia.com/gpu": 3000, "pods": 3000}
    assert "annotations" not in jobs["ml/mpi-gang"].manifest["metadata"]
