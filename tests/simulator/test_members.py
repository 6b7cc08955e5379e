from controller.engine.clusters import ClusterName
from controller.engine.workloads import ClusterCharge
from controller.simulator.members import Members
from tests.simulator.traces import cluster, cpus

HERE = (ClusterCharge(ClusterName("m"), cpus(2)),)


def used(found):
    return None if found is None else found.used.get("cpu", 0) // 1000


def test_a_summary_shows_what_runs_beside_what_others_use():
    members = Members([cluster(used=3)], 10_000)
    members.start(HERE)
    assert used(members.look("m")) == 5
    members.stop(HERE)
    assert used(members.look("m")) == 3


def test_a_summary_that_says_the_same_is_not_written():
    members = Members([cluster(used=3)], 10_000)
    assert members.look("m") is None
    members.start(HERE)
    members.stop(HERE)
    assert members.look("m") is None


def test_what_the_summary_showed_at_the_start_goes_when_it_ends():
    members = Members([cluster(used=3)], 10_000)
    members.counts_already(HERE)
    members.stop(HERE)
    assert used(members.look("m")) == 1


def test_one_look_is_arranged_for_several_changes():
    members = Members([cluster("m"), cluster("n")], 10_000)
    there = ClusterCharge(ClusterName("n"), cpus(1))
    assert members.start((*HERE, there)) == ["m", "n"]
    assert members.stop(HERE) == []
    members.look("m")
    assert members.start(HERE) == ["m"]


def test_nothing_is_told_of_a_cluster_that_is_not_there():
    assert Members([], 10_000).start(HERE) == []


def test_summaries_are_looked_at_at_whole_periods():
    members = Members([], 10_000)
    assert [members.next_look(now) for now in (0, 9_999, 10_000)] == [10_000, 10_000, 20_000]
    assert Members([], 0).next_look(7) == 7
