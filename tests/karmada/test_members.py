"""Cluster status of members, and members that join and leave."""

from tests.karmada.harness import is_ready

TAINT = "cluster.karmada.io/not-ready"


def test_summary_follows_usage_and_omits_zero_amounts(harness):
    harness.propagate()
    harness.wait(lambda: "allocated" not in harness.cluster("member2")["status"]["resourceSummary"], "nothing runs")
    harness.run("train", "member2", replicas=3, cpu="1500m")
    harness.wait(
        lambda: (
            harness.cluster("member2")["status"]["resourceSummary"].get("allocated") == {"cpu": "4500m", "pods": "3"}
        ),
        "use shown",
    )
    allocatable = harness.cluster("member2")["status"]["resourceSummary"]["allocatable"]
    assert allocatable == {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4", "pods": "110"}
    if harness.cluster("member2")["spec"].get("resourceModels"):
        told = harness.cluster("member2")["status"]
        counts = [modeling["count"] for modeling in told["resourceSummary"]["allocatableModelings"]]
        assert (len(counts), sum(counts)) == (9, told["nodeSummary"]["totalNum"])
    harness.api.delete(f"{harness.jobs}/train")
    harness.wait(lambda: "allocated" not in harness.cluster("member2")["status"]["resourceSummary"], "use gone")


def test_gang_that_does_not_fit_has_no_pods(harness):
    harness.propagate()
    harness.submit("train", replicas=4, cpu="3")
    harness.wait_for_binding()
    harness.resume("train", "member1")
    harness.wait_for_phase("Pending")
    summary = harness.cluster("member1")["status"]["resourceSummary"]
    assert {"allocated", "allocating"}.isdisjoint(summary)


def test_unreachable_member_is_tainted_and_keeps_its_summary(harness):
    harness.join(name := f"away-{harness.namespace}", cpu="4")
    harness.wait(lambda: is_ready(harness.cluster(name)), "ready")
    harness.wait(lambda: harness.cluster(name)["status"].get("resourceSummary"), "summary")
    harness.propagate(clusters=[name])
    harness.run("runs", name)
    harness.describe(name, ready="False")
    harness.wait(lambda: not is_ready(harness.cluster(name)), "away")
    harness.wait(lambda: TAINT in harness.taints_of(name), "tainted")
    found = harness.cluster(name)
    assert found["status"]["resourceSummary"]["allocatable"]["cpu"] == "4"
    assert {(taint["key"], taint["effect"]) for taint in found["spec"]["taints"]} == {(TAINT, "NoSchedule")}
    assert harness.targets("runs") == [name]
    harness.submit("train")
    harness.wait_for_binding()
    harness.resume()
    harness.wait_for_conditions(Scheduled="NoClusterFit")
    harness.describe(name, ready="True")
    harness.wait(lambda: TAINT not in harness.taints_of(name), "back")
    harness.wait_for_targets(name)
    assert harness.phase("runs") == "Running"


def test_member_that_was_never_ready_has_no_summary(harness):
    harness.join(name := f"never-{harness.namespace}", cpu="4", ready="False")
    harness.wait(lambda: TAINT in harness.taints_of(name), "tainted")
    harness.wait(lambda: harness.cluster(name).get("status", {}).get("conditions"), "told")
    status = harness.cluster(name)["status"]
    assert {"resourceSummary", "apiEnablements"}.isdisjoint(status)
    assert not is_ready(harness.cluster(name))


def test_bindings_of_a_deleted_member_are_rescheduled(harness):
    harness.join(name := f"leaves-{harness.namespace}", cpu="4")
    harness.wait(lambda: is_ready(harness.cluster(name)), "ready")
    harness.propagate(clusters=[name, "member2"])
    harness.run("train", name)
    harness.leave(name)
    harness.wait_for_targets("member2")
    harness.wait_for_conditions(Scheduled="Success", FullyApplied="FullyAppliedSuccess")


def test_job_that_fails_in_its_member_is_unhealthy(harness):
    harness.propagate()
    annotations = {"volcano-global.io/outcome": "Failed", "volcano-global.io/runtime": "1s"}
    harness.submit("train", annotations=annotations)
    harness.wait_for_binding()
    harness.resume("train", "member1")
    harness.wait_for_phase("Failed")
    assert harness.binding()["status"]["aggregatedStatus"][0]["health"] == "Unhealthy"
