from controller.engine.state.clusters import ClusterName
from controller.engine.state.workloads import ClusterCharge
from controller.simulator.clusters import SimulatedClusters
from tests.simulator.traces import cluster, cpus

HERE = (ClusterCharge(ClusterName("m"), cpus(2)),)


def used(found):
    return None if found is None else found.used.get("cpu", 0) // 1000


def test_summary_includes_external_usage_and_jobs():
    members = SimulatedClusters([cluster(used=3)], 10_000)
    members.start(HERE)
    assert used(members.update("m")) == 5
    members.stop(HERE)
    assert used(members.update("m")) == 3


def test_unchanged_summary_is_not_updated():
    members = SimulatedClusters([cluster(used=3)], 10_000)
    assert members.update("m") is None
    members.start(HERE)
    members.stop(HERE)
    assert members.update("m") is None


def test_initially_reported_usage_is_removed_at_the_end():
    members = SimulatedClusters([cluster(used=3)], 10_000)
    members.add_existing(HERE)
    members.stop(HERE)
    assert used(members.update("m")) == 1


def test_one_status_update_covers_several_changes():
    members = SimulatedClusters([cluster("m"), cluster("n")], 10_000)
    there = ClusterCharge(ClusterName("n"), cpus(1))
    assert members.start((*HERE, there)) == ["m", "n"]
    assert members.stop(HERE) == []
    members.update("m")
    assert members.start(HERE) == ["m"]


def test_charges_on_unknown_clusters_are_ignored():
    assert SimulatedClusters([], 10_000).start(HERE) == []


def test_status_updates_occur_at_multiples_of_the_period():
    members = SimulatedClusters([], 10_000)
    assert [members.next_update(now) for now in (0, 9_999, 10_000)] == [10_000, 10_000, 20_000]
    assert SimulatedClusters([], 0).next_update(7) == 7
