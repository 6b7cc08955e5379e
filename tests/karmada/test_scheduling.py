"""Scheduling of resumed bindings, and retries, by Karmada's scheduler."""

import time

from tests.karmada.harness import DEPLOYMENTS, pods

DIVIDED = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}


def deployment(name, *, replicas, cpu):
    template = pods(cpu) | {"metadata": {"labels": {"app": name}}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def labelled(value):
    return {"clusterAffinity": {"labelSelector": {"matchLabels": {"pool": value}}}}


def spread(groups):
    return [{"spreadByField": "cluster", "minGroups": groups, "maxGroups": groups}]


def test_queued_binding_is_scheduled_though_suspended(harness):
    pool = harness.namespace
    harness.propagate(placement=labelled(pool) | {"spreadConstraints": spread(2)})
    harness.label("member1", pool=pool)
    harness.admit()
    harness.wait_for_conditions(Scheduled="SchedulerError")
    harness.pause()
    harness.label("member2", pool=pool)
    harness.wait_for_targets("member1", "member2")
    assert harness.binding()["spec"]["suspension"] == {"scheduling": True}
    # A Work that is created after the binding has lost its clusters stays behind.
    harness.wait(lambda: harness.works_of("train") and harness.works_of("train", "member2"), "its works")
    harness.evict()
    harness.wait(lambda: not harness.works_of("train") and not harness.works_of("train", "member2"), "cleared")
    assert harness.targets() == []


def test_infeasible_preset_cluster_is_replaced(harness):
    harness.propagate(clusters=["member2"])
    harness.admit("train", "member1")
    harness.wait_for_targets("member2")
    # A Work on the first cluster stays behind where it was created after the binding had left that cluster.
    harness.wait(lambda: harness.works_of("train", "member2"), "moved")


def test_ordered_affinities_start_at_the_last_observed(harness):
    terms = [
        {"affinityName": name, "clusterNames": [where]}
        for name, where in {"none": "x", "m1": "member1", "m2": "member2"}.items()
    ]
    harness.propagate(placement={"clusterAffinities": terms, "spreadConstraints": spread(1)})
    harness.admit()
    harness.wait_for_targets("member1")
    harness.wait(lambda: harness.observed() == "m1", "the second term observed")
    harness.submit("second")
    harness.api.merge(f"{harness.bindings}/second-job/status", {"status": {"schedulerObservingAffinityName": "m2"}})
    harness.resume("second")
    harness.wait_for_targets("member2", name="second")
    assert harness.observed("second") == "m2"


def test_job_without_spread_constraint_is_copied_everywhere(harness):
    harness.propagate(spread=False)
    harness.admit("train", "member2")
    harness.wait_for_targets("member1", "member2")
    harness.wait(
        lambda: harness.works_of("train", "member1") and harness.works_of("train", "member2"), "a copy in each"
    )
    harness.wait(lambda: len(harness.binding()["status"].get("aggregatedStatus", ())) == 2, "both told")


def test_unschedulable_replicas_ignore_new_capacity(harness, karmada):
    """Suspending and resuming the binding retries it at once; Karmada 1.14 retries it soon, as an error."""
    reason = "Unschedulable" if karmada >= (1, 15) else "SchedulerError"
    harness.join(name := f"grows-{harness.namespace}", cpu="8")
    affinity = {"clusterAffinity": {"clusterNames": [name]}, "replicaScheduling": DIVIDED}
    harness.propagate(kind="Deployment", placement=affinity)
    harness.api.create(DEPLOYMENTS.format(harness.namespace), deployment("web", replicas=3, cpu="6"))
    path = f"{harness.bindings}/web-deployment"

    def reasons():
        conditions = (harness.look(path) or {}).get("status", {}).get("conditions", ())
        return [condition["reason"] for condition in conditions if condition["type"] == "Scheduled"]

    harness.wait(lambda: reasons() == [reason], "told")
    # Default resource models count a node with the lower bound of its lowest grade.
    harness.describe(name, allocatable='{"cpu": "64", "memory": "256Gi", "pods": "110"}')
    # A cluster that is not ready yet reports no amounts.
    harness.wait(
        lambda: harness.cluster(name)["status"].get("resourceSummary", {}).get("allocatable", {}).get("cpu") == "64",
        "room",
    )
    if karmada >= (1, 15):
        time.sleep(4)
        assert harness.targets_of("web-deployment") is None
    for paused in (True, False):
        harness.api.merge(path, {"spec": {"suspension": {"scheduling": paused}}})
    harness.wait(lambda: harness.targets_of("web-deployment") == [{"name": name, "replicas": 3}], "placed")


def test_static_weights_divide_replicas_by_quotients(harness, karmada):
    """The fifth replica goes to the cluster with a fifth of the weight, before 1.16 to the one with the largest."""
    rules = [
        {"targetCluster": {"clusterNames": [name]}, "weight": weight}
        for name, weight in {"member1": 5, "member2": 1}.items()
    ]
    weighted = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}
    placement = {"replicaScheduling": weighted | {"weightPreference": {"staticWeightList": rules}}}
    harness.propagate(kind="Deployment", placement=placement)
    harness.api.create(DEPLOYMENTS.format(harness.namespace), deployment("web", replicas=5, cpu="100m"))
    rest = [{"name": "member2", "replicas": 1}] if karmada >= (1, 16) else []
    divided = [{"name": "member1", "replicas": 5 - len(rest)}, *rest]
    harness.wait(lambda: harness.targets_of("web-deployment") == divided, "divided")


def test_bindings_of_a_deleted_member_move_where_they_do_not_fit(harness):
    harness.join(name := f"leaves-{harness.namespace}", cpu="64")
    harness.propagate(clusters=[name, "member2"])
    harness.run("train", name, replicas=1, cpu="30")
    harness.leave(name)
    harness.wait_for_targets("member2")
    harness.wait_for_phase("Pending")
