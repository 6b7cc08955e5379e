from dataclasses import replace

import pytest

from localup.demo.invariants import InvariantChecker, Limits
from localup.demo.scenario import DemoJob, volcano_job

CPU = {"cpu": 4000}


@pytest.fixture
def books(role):
    return InvariantChecker({role.name: role}, Limits(queues={"team-a": CPU}, clusters={"member1": CPU}))


def test_an_orderly_way_breaks_nothing(books, sighting, admitted):
    books.see(sighting(version=1))
    books.see(admitted(version=2))
    books.see_work("team-a/train-job", 3)
    books.see(admitted(version=4, phase="Running", pods=2))
    books.see(admitted(version=5, phase="Completed", pods=2))
    assert books.broken == []
    assert books.unadmitted_works() == []


def test_what_is_admitted_is_used_until_it_is_over(books, sighting, admitted):
    books.see(sighting())
    assert books.used("team-a") == {}
    assert books.count("team-a") == (0, 1)
    books.see(admitted())
    assert books.used("team-a")["cpu"] == 4000
    assert books.count("team-a") == (1, 0)
    books.see(admitted(phase="Completed", pods=2))
    assert books.used("team-a") == {}
    assert books.count("team-a") == (0, 0)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        pytest.param({"paused": False, "recorded": True}, "was stored unpaused", id="unpaused"),
        pytest.param({"clusters": ("member1",)}, "has clusters although it is paused", id="preset"),
        pytest.param({"phase": "Running", "pods": 2}, "runs although it was not admitted", id="unadmitted"),
    ],
)
def test_what_is_wrong_at_first_sight_is_noted(books, sighting, changes, wrong):
    books.see(sighting(**changes))
    assert books.broken == [f"team-a/train {wrong}"]


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        pytest.param({"recorded": False}, "was resumed without a record of its admission", id="unrecorded"),
        pytest.param({"clusters": ("member1", "member2")}, "was given 2 clusters", id="copied"),
        pytest.param({"phase": "Running", "pods": 1}, "started 1 of the 2 pods of its gang", id="in-part"),
    ],
)
def test_what_is_wrong_with_an_admission_is_noted(books, sighting, admitted, changes, wrong):
    books.see(sighting())
    books.see(admitted(**changes))
    assert books.broken == [f"team-a/train {wrong}"]


def test_too_much_in_a_queue_and_in_a_cluster_is_noted(role, sighting, admitted):
    other = DemoJob(volcano_job("team-a/other", "team-a", pods=1, cpu=1, runtime="1s"))
    books = InvariantChecker(
        {role.name: role, other.name: other}, Limits(queues={"team-a": CPU}, clusters={"member1": CPU})
    )
    for number, job in enumerate((role.name, other.name)):
        books.see(sighting(job=job, binding=f"{job}-job"))
        books.see(admitted(version=number, job=job, binding=f"{job}-job"))
    assert books.broken == ["queue team-a held 5 cpu of 4", "cluster member1 held 5 cpu of 4"]


def test_an_admission_of_what_can_never_run_is_noted(role, sighting, admitted):
    books = InvariantChecker({role.name: replace(role, forever="ExceedsEveryCluster")}, Limits({}, {}))
    books.see(sighting())
    books.see(admitted())
    assert books.broken == ["team-a/train was admitted although it can never run"]


def test_a_work_from_before_the_admission_is_noted(books, sighting, admitted):
    books.see(sighting(version=1))
    books.see_work("team-a/train-job", 2)
    books.see(admitted(version=3))
    assert books.unadmitted_works() == ["binding team-a/train-job was sent to a cluster before it was admitted"]


def test_a_work_of_what_was_never_admitted_is_noted(books, sighting):
    books.see(sighting(version=1))
    books.see_work("team-a/train-job", 2)
    assert len(books.unadmitted_works()) == 1


def test_jobs_of_somebody_else_are_left_alone(books, sighting):
    books.see(sighting(job="team-a/mine", paused=False))
    assert books.broken == []
    books.forget("team-a/mine")
    assert books.last == {}


def test_the_old_status_of_one_that_had_to_go_is_no_unadmitted_run(books, sighting, admitted):
    books.see(sighting(version=1))
    books.see(admitted(version=2, phase="Running", pods=2))
    books.see(sighting(version=3, phase="Running", pods=2))
    assert books.broken == []
    assert books.used("team-a") == {}
