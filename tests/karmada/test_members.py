"""Cluster status of members."""

from tests.karmada.harness import is_ready

TAINT = "cluster.karmada.io/not-ready"
LOWER_ENDS = {
    "cpu": ["0", "1", "2", "4", "8", "16", "32", "64", "128"],
    "memory": ["0", "4Gi", "16Gi", "32Gi", "64Gi", "128Gi", "256Gi", "512Gi", "1Ti"],
}


def test_summary_follows_usage_and_omits_zero_amounts(harness):
    def summary():
        return harness.cluster("member2")["status"]["resourceSummary"]

    harness.propagate()
    harness.wait(lambda: "allocated" not in summary(), "nothing runs")
    harness.run("train", "member2", replicas=3, cpu="1500m")
    harness.wait(lambda: summary().get("allocated") == {"cpu": "4500m", "pods": "3"}, "use shown")
    assert summary()["allocatable"] == {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4", "pods": "110"}
    harness.api.delete(f"{harness.jobs}/train")
    harness.wait(lambda: "allocated" not in summary(), "use gone")


def test_nodes_are_counted_by_their_lowest_free_grade(harness):
    """Nine grades of CPU and memory; a gang that does not fit leaves the counts unchanged."""
    harness.join(name := f"nodes-{harness.namespace}", cpu="32")
    harness.describe(name, nodes='[{"count": 4, "allocatable": {"cpu": "8", "memory": "32Gi"}}]')

    def counted():
        modelings = harness.cluster(name).get("status", {}).get("resourceSummary", {}).get("allocatableModelings", ())
        return {model["grade"]: model["count"] for model in modelings if model["count"]}

    harness.wait(lambda: counted() == {3: 4}, "four empty nodes")
    models = harness.cluster(name)["spec"]["resourceModels"]
    assert [model["grade"] for model in models] == list(range(9))
    for resource, lower_ends in LOWER_ENDS.items():
        ranges = [next(item for item in model["ranges"] if item["name"] == resource) for model in models]
        assert [item["min"] for item in ranges] == lower_ends
    harness.propagate(clusters=[name])
    for job, replicas in (("scattered", 6), ("packed", 4)):
        harness.admit(job, name, replicas=replicas, cpu="5")
    harness.wait_for_phase("Running", "packed")
    harness.wait_for_phase("Pending", "scattered")
    # 3 CPUs are free on each node.
    harness.wait(lambda: counted() == {2: 4}, "what is left on each node")


def test_unreachable_member_is_tainted_and_keeps_its_summary(harness):
    harness.join(name := f"away-{harness.namespace}", cpu="4")
    harness.wait(lambda: is_ready(harness.cluster(name)), "ready")
    harness.wait(lambda: harness.cluster(name)["status"].get("resourceSummary"), "summary")
    harness.propagate(clusters=[name])
    harness.run("runs", name)
    harness.describe(name, ready="False")
    harness.wait(lambda: not is_ready(harness.cluster(name)), "away")
    harness.wait(lambda: TAINT in harness.taints_of(name), "tainted")
    cluster = harness.cluster(name)
    assert cluster["status"]["resourceSummary"]["allocatable"]["cpu"] == "4"
    assert {(taint["key"], taint["effect"]) for taint in cluster["spec"]["taints"]} == {(TAINT, "NoSchedule")}
    assert harness.targets("runs") == [name]
    harness.admit()
    harness.wait_for_conditions(Scheduled="NoClusterFit")
    harness.describe(name, ready="True")
    harness.wait(lambda: TAINT not in harness.taints_of(name), "back")
    harness.wait_for_targets(name)
    assert harness.phase("runs") == "Running"
