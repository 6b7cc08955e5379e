from dataclasses import replace

import pytest

from localup.demo.invariants import InvariantChecker, Limits
from localup.demo.scenario import DemoJob, volcano_job

CPU = {"cpu": 4000}


@pytest.fixture
def checker(demo_job):
    return InvariantChecker({demo_job.name: demo_job}, Limits(queues={"team-a": CPU}, clusters={"member1": CPU}))


def test_an_orderly_way_breaks_nothing(checker, binding_status, admitted):
    checker.observe(binding_status(version=1))
    checker.observe(admitted(version=2))
    checker.observe_work("team-a/train-job", 3)
    checker.observe(admitted(version=4, phase="Running", pods=2))
    checker.observe(admitted(version=5, phase="Completed", pods=2))
    assert checker.violations == []
    assert checker.unadmitted_works() == []


def test_what_is_admitted_is_used_until_it_is_over(checker, binding_status, admitted):
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
    ("changes", "wrong"),
    [
        pytest.param({"suspended": False, "has_record": True}, "was stored unpaused", id="unpaused"),
        pytest.param({"clusters": ("member1",)}, "has clusters although it is paused", id="preset"),
        pytest.param({"phase": "Running", "pods": 2}, "runs although it was not admitted", id="unadmitted"),
    ],
)
def test_what_is_wrong_at_first_sight_is_noted(checker, binding_status, changes, wrong):
    checker.observe(binding_status(**changes))
    assert checker.violations == [f"team-a/train {wrong}"]


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        pytest.param({"has_record": False}, "was resumed without a record of its admission", id="unrecorded"),
        pytest.param({"clusters": ("member1", "member2")}, "was given 2 clusters", id="copied"),
        pytest.param({"phase": "Running", "pods": 1}, "started 1 of the 2 pods of its gang", id="in-part"),
    ],
)
def test_what_is_wrong_with_an_admission_is_noted(checker, binding_status, admitted, changes, wrong):
    checker.observe(binding_status())
    checker.observe(admitted(**changes))
    assert checker.violations == [f"team-a/train {wrong}"]


def test_too_much_in_a_queue_and_in_a_cluster_is_noted(demo_job, binding_status, admitted):
    other = DemoJob(volcano_job("team-a/other", "team-a", pods=1, cpu=1, runtime="1s"))
    checker = InvariantChecker(
        {demo_job.name: demo_job, other.name: other}, Limits(queues={"team-a": CPU}, clusters={"member1": CPU})
    )
    for number, job in enumerate((demo_job.name, other.name)):
        checker.observe(binding_status(job=job, binding=f"{job}-job"))
        checker.observe(admitted(version=number, job=job, binding=f"{job}-job"))
    assert checker.violations == ["queue team-a held 5 cpu of 4", "cluster member1 held 5 cpu of 4"]


def test_an_admission_of_what_can_never_run_is_noted(demo_job, binding_status, admitted):
    checker = InvariantChecker(
        {demo_job.name: replace(demo_job, expected_reason="ExceedsEveryCluster")}, Limits({}, {})
    )
    checker.observe(binding_status())
    checker.observe(admitted())
    assert checker.violations == ["team-a/train was admitted although it can never run"]


def test_a_work_from_before_the_admission_is_noted(checker, binding_status, admitted):
    checker.observe(binding_status(version=1))
    checker.observe_work("team-a/train-job", 2)
    checker.observe(admitted(version=3))
    assert checker.unadmitted_works() == ["binding team-a/train-job was sent to a cluster before it was admitted"]


def test_a_work_of_what_was_never_admitted_is_noted(checker, binding_status):
    checker.observe(binding_status(version=1))
    checker.observe_work("team-a/train-job", 2)
    assert len(checker.unadmitted_works()) == 1


def test_jobs_of_somebody_else_are_left_alone(checker, binding_status):
    checker.observe(binding_status(job="team-a/mine", suspended=False))
    assert checker.violations == []
    checker.forget("team-a/mine")
    assert checker.last == {}


def test_the_old_status_of_one_that_had_to_go_is_no_unadmitted_run(checker, binding_status, admitted):
    checker.observe(binding_status(version=1))
    checker.observe(admitted(version=2, phase="Running", pods=2))
    checker.observe(binding_status(version=3, phase="Running", pods=2))
    assert checker.violations == []
    assert checker.used("team-a") == {}
