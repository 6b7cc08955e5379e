"""Bindings and works of templates, and which fields survive changes."""

from tests.karmada.harness import pods

CLAIM = "propagationpolicy.karmada.io/permanent-id"
PLACED = {"Scheduled": "Success", "FullyApplied": "FullyAppliedSuccess"}


def test_job_gets_a_suspended_binding_that_stays_idle(harness):
    harness.propagate()
    binding = harness.submit(replicas=3)
    template = harness.job()["metadata"]
    spec, metadata = binding["spec"], binding["metadata"]
    assert spec["suspension"] == {"scheduling": True}
    assert {"clusters", "replicas", "replicaRequirements", "components"}.isdisjoint(spec)
    assert (spec["resource"]["apiVersion"], spec["resource"]["kind"]) == ("batch.volcano.sh/v1alpha1", "Job")
    assert (spec["resource"]["name"], spec["resource"]["uid"]) == ("train", template["uid"])
    assert spec["placement"]["spreadConstraints"] == [{"maxGroups": 1, "minGroups": 1, "spreadByField": "cluster"}]
    assert (spec["schedulerName"], spec["conflictResolution"]) == ("default-scheduler", "Abort")
    [owner] = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", template["uid"], True)
    assert metadata["labels"][CLAIM] == template["labels"][CLAIM]
    assert "resourcebinding.karmada.io/permanent-id" in metadata["labels"]
    assert metadata["finalizers"] == ["karmada.io/binding-controller"]
    harness.touch()
    harness.wait_for_detector()
    harness.run("after")
    assert "status" not in harness.binding()
    assert (harness.targets(), harness.works_of("train")) == ([], [])


def test_resumed_job_runs_on_its_preset_cluster(harness):
    harness.propagate()
    harness.admit("train", "member2", annotations={"volcano-global.io/runtime": "2s"})
    harness.wait_for_phase("Running")
    harness.wait_for_conditions(**PLACED)
    binding = harness.binding()
    assert harness.targets() == ["member2"]
    assert len(harness.works_of("train", "member2")) == 1
    item = binding["status"]["aggregatedStatus"][0]
    assert (item["clusterName"], item["applied"], item["health"]) == ("member2", True, "Healthy")
    assert binding["status"]["schedulerObservedGeneration"] == binding["metadata"]["generation"]
    assert '"spreadByField":"cluster"' in binding["metadata"]["annotations"]["policy.karmada.io/applied-placement"]
    harness.wait_for_phase("Completed")
    assert harness.binding()["status"]["aggregatedStatus"][0]["health"] == "Healthy"


def test_detector_keeps_our_fields_and_repairs_its_own(harness):
    harness.propagate()
    harness.run("train", "member2")
    harness.api.merge(
        f"{harness.bindings}/train-job", {"metadata": {"annotations": {"ours": "1"}, "labels": {"ours": "1"}}}
    )
    harness.change_binding(suspension={"scheduling": True, "dispatching": True}, schedulerName="somebody")
    harness.touch()
    harness.wait_for_detector()
    harness.wait(
        lambda: harness.binding()["spec"]["schedulerName"] == "default-scheduler", "scheduler's name put right"
    )
    binding = harness.binding()
    assert binding["metadata"]["annotations"]["ours"] == binding["metadata"]["labels"]["ours"] == "1"
    assert binding["spec"]["suspension"] == {"scheduling": True}
    assert harness.targets() == ["member2"]


def test_suspension_survives_policy_changes(harness):
    harness.propagate()
    harness.submit()
    harness.change_policy(suspension={"dispatching": True})
    harness.wait(lambda: harness.binding()["spec"]["suspension"].get("dispatching"), "dispatching suspended")
    assert harness.binding()["spec"]["suspension"]["scheduling"]
    harness.change_policy(suspension=None, placement={"clusterAffinity": {"clusterNames": ["member2"]}})
    harness.wait(lambda: "dispatching" not in harness.binding()["spec"]["suspension"], "dispatching free")
    binding = harness.binding()["spec"]
    assert (binding["suspension"], harness.targets()) == ({"scheduling": True}, [])
    assert binding["placement"]["clusterAffinity"]["clusterNames"] == ["member2"]


def test_suspended_dispatching_delays_an_admitted_job(harness):
    harness.propagate(suspension={"dispatching": True})
    harness.admit("train", "member1")
    harness.wait_for_conditions(Scheduled="Success")
    harness.wait(lambda: harness.works_of("train"), "its work")
    assert harness.works_of("train")[0]["spec"]["suspendDispatching"]
    assert harness.phase() is None
    harness.change_policy(suspension=None)
    harness.wait_for_phase("Running")
    assert harness.binding()["spec"]["suspension"] == {"scheduling": False}


def test_deleted_binding_is_recreated_suspended(harness):
    harness.propagate()
    harness.run()
    harness.api.delete(f"{harness.bindings}/train-job")
    harness.wait(lambda: harness.binding() is None and not harness.works_of("train"), "binding and works gone")
    harness.run("after")
    assert harness.binding() is None
    harness.touch()
    harness.wait(harness.binding, "the binding again")
    assert (harness.binding()["spec"]["suspension"], harness.targets()) == ({"scheduling": True}, [])


def test_unclaimed_binding_is_not_scheduled_until_claimed(harness):
    harness.propagate()
    harness.submit()
    harness.api.delete(f"{harness.policies}/jobs")
    harness.wait(lambda: CLAIM not in harness.binding()["metadata"]["labels"], "binding released")
    harness.wait(lambda: CLAIM not in harness.job()["metadata"].get("labels", {}), "template released")
    harness.resume()
    harness.propagate("others", clusters=["member2"])
    harness.run("after", "member2")
    harness.wait_for_targets("member2")
    assert CLAIM in harness.binding()["metadata"]["labels"]


def test_no_dependencies_of_a_job_are_propagated(harness):
    """Karmada's interpreters report none, so its ConfigMaps need a policy of their own."""
    harness.api.create(f"/api/v1/namespaces/{harness.namespace}/configmaps", {"metadata": {"name": "settings"}})
    harness.propagate(propagateDeps=True)
    task = {"name": "main", "replicas": 1}
    volumes = [{"name": "v", "configMap": {"name": "settings"}}]
    harness.run(tasks=[{**task, "template": pods(restartPolicy="Never", volumes=volumes)}], minAvailable=1)
    harness.run("after")
    assert harness.binding()["spec"]["propagateDeps"] is True
    assert harness.look(f"{harness.bindings}/settings-configmap") is None


def test_second_kind_of_equal_name_waits_for_the_binding(harness):
    harness.propagate()
    harness.propagate("plain", kind="Job", resourceSelectors=[{"apiVersion": "batch/v1", "kind": "Job"}])
    harness.run()
    spec = {"template": pods(restartPolicy="Never")}
    path = f"/apis/batch/v1/namespaces/{harness.namespace}/jobs"
    harness.api.create(path, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec})
    harness.wait(
        lambda: harness.api.get(f"{path}/train")["metadata"].get("labels", {}).get(CLAIM), "the second claimed"
    )
    assert harness.binding()["spec"]["resource"]["apiVersion"] == "batch.volcano.sh/v1alpha1"
    harness.api.delete(f"{harness.jobs}/train")
    harness.wait(
        lambda: (harness.binding() or {}).get("spec", {}).get("resource", {}).get("apiVersion") == "batch/v1",
        "the binding of the second",
    )
    harness.api.delete(f"{path}/train?propagationPolicy=Background")
