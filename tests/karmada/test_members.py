"""What a Cluster says of its member, and what its going and coming does."""

from tests.localup.karmada.harness import is_ready

TAINT = "cluster.karmada.io/not-ready"


def test_a_summary_follows_what_runs_and_leaves_out_what_is_zero(desk):
    desk.propagate()
    desk.wait(lambda: "allocated" not in desk.cluster("member2")["status"]["resourceSummary"], "nothing runs")
    desk.run("train", "member2", replicas=3, cpu="1500m")
    desk.wait(
        lambda: desk.cluster("member2")["status"]["resourceSummary"].get("allocated") == {"cpu": "4500m", "pods": "3"},
        "use shown",
    )
    allocatable = desk.cluster("member2")["status"]["resourceSummary"]["allocatable"]
    assert allocatable == {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4", "pods": "110"}
    if desk.cluster("member2")["spec"].get("resourceModels"):
        told = desk.cluster("member2")["status"]
        counts = [each["count"] for each in told["resourceSummary"]["allocatableModelings"]]
        assert (len(counts), sum(counts)) == (9, told["nodeSummary"]["totalNum"])
    desk.api.delete(f"{desk.jobs}/train")
    desk.wait(lambda: "allocated" not in desk.cluster("member2")["status"]["resourceSummary"], "use gone")


def test_a_job_without_room_for_its_gang_has_no_pods(desk):
    desk.propagate()
    desk.submit("train", replicas=4, cpu="3")
    desk.wait_for_binding()
    desk.resume("train", "member1")
    desk.wait_for_phase("Pending")
    summary = desk.cluster("member1")["status"]["resourceSummary"]
    assert {"allocated", "allocating"}.isdisjoint(summary)


def test_a_member_that_is_away_is_tainted_keeps_its_summary_and_takes_nothing_new(desk):
    desk.join(name := f"away-{desk.namespace}", cpu="4")
    desk.wait(lambda: is_ready(desk.cluster(name)), "ready")
    desk.wait(lambda: desk.cluster(name)["status"].get("resourceSummary"), "summary")
    desk.propagate(clusters=[name])
    desk.run("runs", name)
    desk.describe(name, ready="False")
    desk.wait(lambda: not is_ready(desk.cluster(name)), "away")
    desk.wait(lambda: TAINT in desk.taints_of(name), "tainted")
    found = desk.cluster(name)
    assert found["status"]["resourceSummary"]["allocatable"]["cpu"] == "4"
    assert {(each["key"], each["effect"]) for each in found["spec"]["taints"]} == {(TAINT, "NoSchedule")}
    assert desk.targets("runs") == [name]
    desk.submit("train")
    desk.wait_for_binding()
    desk.resume()
    desk.wait_for_conditions(Scheduled="NoClusterFit")
    desk.describe(name, ready="True")
    desk.wait(lambda: TAINT not in desk.taints_of(name), "back")
    desk.wait_for_targets(name)
    assert desk.phase("runs") == "Running"


def test_a_member_that_never_answered_has_no_summary(desk):
    desk.join(name := f"never-{desk.namespace}", cpu="4", ready="False")
    desk.wait(lambda: TAINT in desk.taints_of(name), "tainted")
    desk.wait(lambda: desk.cluster(name).get("status", {}).get("conditions"), "told")
    status = desk.cluster(name)["status"]
    assert {"resourceSummary", "apiEnablements"}.isdisjoint(status)
    assert not is_ready(desk.cluster(name))


def test_a_member_that_is_taken_away_leaves_its_bindings_for_others(desk):
    desk.join(name := f"leaves-{desk.namespace}", cpu="4")
    desk.wait(lambda: is_ready(desk.cluster(name)), "ready")
    desk.propagate(clusters=[name, "member2"])
    desk.run("train", name)
    desk.leave(name)
    desk.wait_for_targets("member2")
    desk.wait_for_conditions(Scheduled="Success", FullyApplied="FullyAppliedSuccess")
