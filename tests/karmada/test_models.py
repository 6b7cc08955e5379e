"""Default resource models: what a stock Karmada writes into every Cluster, and what it counts by them."""

from tests.karmada.harness import LONG, Harness

LOWER_ENDS = {
    "cpu": ["0", "1", "2", "4", "8", "16", "32", "64", "128"],
    "memory": ["0", "4Gi", "16Gi", "32Gi", "64Gi", "128Gi", "256Gi", "512Gi", "1Ti"],
}


def test_a_new_cluster_has_nine_grades_of_cpu_and_memory(desk: Harness):
    models = desk.cluster("member2")["spec"]["resourceModels"]
    assert [model["grade"] for model in models] == list(range(9))
    for name, lower_ends in LOWER_ENDS.items():
        ranges = [next(each for each in model["ranges"] if each["name"] == name) for model in models]
        assert [each["min"] for each in ranges] == lower_ends


def test_nodes_are_counted_by_the_lower_grade_of_what_is_free(desk: Harness):
    def counted() -> dict[int, int]:
        found = desk.cluster("member2")["status"]["resourceSummary"].get("allocatableModelings", ())
        return {model["grade"]: model["count"] for model in found if model["count"]}

    # 16 CPUs are grade 5, 64 GiB are grade 4; GPUs have no grade.
    desk.wait(lambda: counted() == {4: 1}, "one node, in the lower grade of its two resources")


def test_a_gang_without_a_place_on_nodes_waits_and_each_node_is_counted(desk: Harness):
    desk.join(name := f"nodes-{desk.namespace}", cpu="32")
    desk.describe(name, nodes='[{"count": 4, "allocatable": {"cpu": "8", "memory": "32Gi"}}]')

    def counted() -> dict[int, int]:
        found = desk.cluster(name).get("status", {}).get("resourceSummary", {}).get("allocatableModelings", ())
        return {model["grade"]: model["count"] for model in found if model["count"]}

    desk.wait(lambda: counted() == {3: 4}, "four empty nodes")
    desk.propagate(clusters=[name])
    for job, replicas in (("scattered", 6), ("packed", 4)):
        desk.submit(job, replicas=replicas, cpu="5", annotations=LONG)
        desk.wait_for_binding(job)
        desk.resume(job, name)
    desk.wait_for_phase("Running", "packed")
    desk.wait_for_phase("Pending", "scattered")
    # 3 CPUs are left on each.
    desk.wait(lambda: counted() == {2: 4}, "what is left on each node")
