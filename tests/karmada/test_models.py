"""Default resource models in Clusters, and Karmada's node counts by grade."""

from tests.karmada.harness import LONG, Harness

LOWER_ENDS = {
    "cpu": ["0", "1", "2", "4", "8", "16", "32", "64", "128"],
    "memory": ["0", "4Gi", "16Gi", "32Gi", "64Gi", "128Gi", "256Gi", "512Gi", "1Ti"],
}


def test_new_cluster_has_nine_grades_of_cpu_and_memory(harness: Harness):
    models = harness.cluster("member2")["spec"]["resourceModels"]
    assert [model["grade"] for model in models] == list(range(9))
    for name, lower_ends in LOWER_ENDS.items():
        ranges = [next(item for item in model["ranges"] if item["name"] == name) for model in models]
        assert [item["min"] for item in ranges] == lower_ends


def test_nodes_are_counted_by_their_lowest_free_grade(harness: Harness):
    def counted() -> dict[int, int]:
        found = harness.cluster("member2")["status"]["resourceSummary"].get("allocatableModelings", ())
        return {model["grade"]: model["count"] for model in found if model["count"]}

    # 16 CPUs are grade 5, 64 GiB are grade 4; GPUs have no grade.
    harness.wait(lambda: counted() == {4: 1}, "one node, in the lower grade of its two resources")


def test_pending_gang_leaves_node_counts_unchanged(harness: Harness):
    harness.join(name := f"nodes-{harness.namespace}", cpu="32")
    harness.describe(name, nodes='[{"count": 4, "allocatable": {"cpu": "8", "memory": "32Gi"}}]')

    def counted() -> dict[int, int]:
        found = harness.cluster(name).get("status", {}).get("resourceSummary", {}).get("allocatableModelings", ())
        return {model["grade"]: model["count"] for model in found if model["count"]}

    harness.wait(lambda: counted() == {3: 4}, "four empty nodes")
    harness.propagate(clusters=[name])
    for job, replicas in (("scattered", 6), ("packed", 4)):
        harness.submit(job, replicas=replicas, cpu="5", annotations=LONG)
        harness.wait_for_binding(job)
        harness.resume(job, name)
    harness.wait_for_phase("Running", "packed")
    harness.wait_for_phase("Pending", "scattered")
    # 3 CPUs are free on each node.
    harness.wait(lambda: counted() == {2: 4}, "what is left on each node")
