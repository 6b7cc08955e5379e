from dataclasses import replace

import pytest

from localup.demo.checks import InvariantChecker
from localup.demo.scenario import DemoJob, Limits, volcano_job

CPU = {"cpu": 4000}


@pytest.fixture
def checker(demo_job):
    return InvariantChecker({demo_job.name: demo_job}, Limits(queues={"team-a": CPU}, clusters={"member1": CPU}))


def test_regular_progress_has_no_violations(checker, binding_status, admitted):
    checker.observe(binding_status(version=1))
    checker.observe(admitted(version=2))
    checker.observe_work("team-a/train-job", 3)
    checker.observe(admitted(version=4, phase="Running", pods=2))
    checker.observe(admitted(version=5, phase="Completed", pods=2))
    assert checker.violations == []
    assert checker.unadmitted_works() == []


def test_admitted_job_is_charged_until_it_finishes(checker, binding_status, admitted):
    checker.observe(binding_status())
    assert checker.used("team-a") == {}
    assert checker.count("team-a") == (0, 1)
    checker.observe(admitted())
    assert checker.used("team-a")["cpu"] == 4000
    assert checker.count("team-a") == (1, 0)
    checker.observe(admitted(phase="Completed", pods=2))
    assert checker.used("team-a") == {}
    assert checker.count("team-a") == (0, 0)


@pytest.mark.parametrize(
    ("changes", "violation"),
    [
        pytest.param({"suspended": False, "has_record": True}, "was stored without being suspended", id="unpaused"),
        pytest.param({"clusters": ("member1",)}, "has clusters although it is suspended", id="preset"),
        pytest.param({"phase": "Running", "pods": 2}, "runs although it was not admitted", id="unadmitted"),
    ],
)
def test_violation_of_a_new_binding_is_reported(checker, binding_status, changes, violation):
    checker.observe(binding_status(**changes))
    assert checker.violations == [f"team-a/train {violation}"]


@pytest.mark.parametrize(
    ("changes", "violation"),
    [
        pytest.param({"has_record": False}, "was resumed without an admission record", id="unrecorded"),
        pytest.param({"clusters": ("member1", "member2")}, "was assigned 2 clusters", id="copied"),
        pytest.param({"phase": "Running", "pods": 1}, "started 1 of the 2 pods of its gang", id="in-part"),
    ],
)
def test_violation_of_an_admission_is_reported(checker, binding_status, admitted, changes, violation):
    checker.observe(binding_status())
    checker.observe(admitted(**changes))
    assert checker.violations == [f"team-a/train {violation}"]


def test_exceeding_queue_and_cluster_limits_is_reported(demo_job, binding_status, admitted):
    other = DemoJob(volcano_job("team-a/other", "team-a", pods=1, cpu=1, runtime="1s"))
    checker = InvariantChecker(
        {demo_job.name: demo_job, other.name: other}, Limits(queues={"team-a": CPU}, clusters={"member1": CPU})
    )
    for number, job in enumerate((demo_job.name, other.name)):
        checker.observe(binding_status(job=job, binding=f"{job}-job"))
        checker.observe(admitted(version=number, job=job, binding=f"{job}-job"))
    assert checker.violations == ["queue team-a uses 5 cpu, limit 4", "cluster member1 uses 5 cpu, limit 4"]


def test_admission_of_inadmissible_job_is_reported(demo_job, binding_status, admitted):
    checker = InvariantChecker(
        {demo_job.name: replace(demo_job, expected_reason="ExceedsEveryCluster")}, Limits({}, {})
    )
    checker.observe(binding_status())
    checker.observe(admitted())
    assert checker.violations == ["team-a/train was admitted although it is inadmissible"]


def test_work_created_before_admission_is_reported(checker, binding_status, admitted):
    checker.observe(binding_status(version=1))
    checker.observe_work("team-a/train-job", 2)
    checker.observe(admitted(version=3))
    assert checker.unadmitted_works() == ["binding team-a/train-job was sent to a cluster before it was admitted"]


def test_work_without_admission_is_reported(checker, binding_status):
    checker.observe(binding_status(version=1))
    checker.observe_work("team-a/train-job", 2)
    assert len(checker.unadmitted_works()) == 1


def test_user_submitted_jobs_are_not_checked(checker, binding_status):
    checker.observe(binding_status(job="team-a/mine", suspended=False))
    assert checker.violations == []
    checker.forget("team-a/mine")
    assert checker.last == {}


def test_stale_status_after_eviction_is_no_violation(checker, binding_status, admitted):
    checker.observe(binding_status(version=1))
    checker.observe(admitted(version=2, phase="Running", pods=2))
    checker.observe(binding_status(version=3, phase="Running", pods=2))
    assert checker.violations == []
    assert checker.used("team-a") == {}
