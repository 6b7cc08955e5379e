"""How Karmada's scheduler places what is resumed, and when it tries again."""

import time

from tests.karmada.harness import DEPLOYMENTS, LONG
from tests.localup.karmada.harness import job

DIVIDED = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}


def deployment(name, *, replicas, cpu):
    pods = job("x", cpu=cpu)["spec"]["tasks"][0]["template"] | {"metadata": {"labels": {"app": name}}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pods}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def labelled(value):
    return {"clusterAffinity": {"labelSelector": {"matchLabels": {"pool": value}}}}


def spread(groups):
    return [{"spreadByField": "cluster", "minGroups": groups, "maxGroups": groups}]


def test_what_is_in_the_schedulers_queue_is_placed_although_it_is_paused_meanwhile(desk):
    pool = desk.namespace
    desk.propagate(placement=labelled(pool) | {"spreadConstraints": spread(2)})
    desk.label("member1", pool=pool)
    desk.submit("train")
    desk.wait_for_binding()
    desk.resume()
    desk.wait_for_conditions(Scheduled="SchedulerError")
    desk.pause()
    desk.label("member2", pool=pool)
    desk.wait_for_targets("member1", "member2")
    assert desk.binding()["spec"]["suspension"] == {"scheduling": True}
    desk.evict()
    desk.wait(lambda: not desk.works_of("train") and not desk.works_of("train", "member2"), "cleared")
    assert desk.targets() == []


def test_what_fits_no_cluster_is_tried_again_when_a_cluster_changes_and_not_before(desk):
    pool = desk.namespace
    desk.propagate(placement=labelled(pool) | {"spreadConstraints": spread(1)})
    desk.submit("train")
    desk.wait_for_binding()
    desk.resume("train", "member1")
    desk.wait_for_conditions(Scheduled="NoClusterFit")
    desk.wait(lambda: desk.targets() == [] and not desk.works_of("train"), "our pick cleared")
    generation = desk.binding()["metadata"]["generation"]
    desk.wait(lambda: desk.condition("Scheduled")["status"] == "False", "told")
    assert "clusters are available" in desk.condition("Scheduled")["message"]
    assert desk.binding()["metadata"]["generation"] == generation
    desk.label("member2", pool=pool)
    desk.wait_for_targets("member2")


def test_a_pick_that_the_policy_does_not_allow_is_moved_to_one_that_it_does(desk):
    desk.propagate(clusters=["member2"])
    desk.submit("train", annotations=LONG)
    desk.wait_for_binding()
    desk.resume("train", "member1")
    desk.wait_for_targets("member2")
    desk.wait(lambda: desk.works_of("train", "member2") and not desk.works_of("train"), "moved")


def test_ordered_affinities_are_tried_from_the_one_observed_last(desk):
    terms = [
        {"affinityName": name, "clusterNames": [where]}
        for name, where in {"none": "x", "m1": "member1", "m2": "member2"}.items()
    ]
    desk.propagate(placement={"clusterAffinities": terms, "spreadConstraints": spread(1)})
    desk.submit("train", annotations=LONG)
    desk.wait_for_binding()
    desk.resume()
    desk.wait_for_targets("member1")
    desk.wait(lambda: desk.observed() == "m1", "the second term observed")
    desk.submit("second", annotations=LONG)
    desk.wait_for_binding("second")
    desk.api.merge(f"{desk.bindings}/second-job/status", {"status": {"schedulerObservingAffinityName": "m2"}})
    desk.resume("second")
    desk.wait_for_targets("member2", name="second")
    assert desk.observed("second") == "m2"


def test_without_a_spread_constraint_a_job_is_copied_to_every_cluster_that_is_allowed(desk):
    desk.propagate(spread=False)
    desk.submit("train", annotations=LONG)
    desk.wait_for_binding()
    desk.resume("train", "member2")
    desk.wait_for_targets("member1", "member2")
    desk.wait(lambda: desk.works_of("train", "member1") and desk.works_of("train", "member2"), "a copy in each")
    desk.wait(lambda: len(desk.binding()["status"].get("aggregatedStatus", ())) == 2, "both told")


def test_replicas_that_fit_nowhere_wait_although_room_appears_and_are_placed_when_paused_and_resumed(desk):
    desk.propagate(
        kind="Deployment", placement={"clusterAffinity": {"clusterNames": ["member1"]}, "replicaScheduling": DIVIDED}
    )
    desk.api.create(DEPLOYMENTS.format(desk.namespace), deployment("web", replicas=3, cpu="6"))
    path = f"{desk.bindings}/web-deployment"

    def reason():
        conditions = (desk.look(path) or {}).get("status", {}).get("conditions", ())
        return next((each["reason"] for each in conditions if each["type"] == "Scheduled"), None)

    desk.wait(reason, "told")
    assert reason() == "Unschedulable"
    assert desk.targets_of("web-deployment") is None
    # By Karmada's default resource models a node counts with the lower end of the grade of its scarcer resource.
    desk.describe("member1", allocatable='{"cpu": "64", "memory": "256Gi", "pods": "110"}')
    try:
        desk.wait(lambda: desk.cluster("member1")["status"]["resourceSummary"]["allocatable"]["cpu"] == "64", "room")
        time.sleep(4)
        still = desk.targets_of("web-deployment")
        for paused in (True, False):
            desk.api.merge(path, {"spec": {"suspension": {"scheduling": paused}}})
        desk.wait(lambda: desk.targets_of("web-deployment") == [{"name": "member1", "replicas": 3}], "placed")
        assert still is None
    finally:
        desk.describe("member1", allocatable='{"cpu": "8", "memory": "32Gi", "pods": "110"}')
        desk.wait(
            lambda: desk.cluster("member1")["status"]["resourceSummary"]["allocatable"]["cpu"] == "8", "as before"
        )


def test_a_cluster_that_is_added_takes_what_found_none(desk):
    name = f"late-{desk.namespace}"
    desk.propagate(clusters=[name])
    desk.submit("train")
    desk.wait_for_binding()
    desk.resume()
    desk.wait_for_conditions(Scheduled="NoClusterFit")
    desk.join(name, cpu="4")
    desk.wait_for_targets(name)
    desk.wait_for_phase("Running")


def test_a_cluster_that_changes_places_what_is_resumed_although_no_policy_claims_it(desk):
    desk.propagate()
    desk.submit("train")
    desk.wait_for_binding()
    desk.api.delete(f"{desk.policies}/jobs")
    claim = "propagationpolicy.karmada.io/permanent-id"
    desk.wait(lambda: claim not in desk.binding()["metadata"]["labels"], "binding released")
    desk.resume()
    assert desk.targets() == []
    desk.label("member1", changed=desk.namespace)
    desk.wait_for_targets("member1")
