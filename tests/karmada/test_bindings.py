"""Bindings and works of templates, and which fields survive changes."""

from tests.karmada.harness import LONG, cluster_policy, job

CRBS = "/apis/work.karmada.io/v1alpha2/clusterresourcebindings"
CLUSTER_POLICIES = "/apis/policy.karmada.io/v1alpha1/clusterpropagationpolicies"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CLAIM = "propagationpolicy.karmada.io/permanent-id"
PLACED = {"Scheduled": "Success", "FullyApplied": "FullyAppliedSuccess"}


def test_job_gets_a_suspended_binding_without_requests(harness):
    harness.propagate()
    harness.submit("train", replicas=3)
    binding = harness.wait_for_binding()
    template = harness.job()["metadata"]
    spec, metadata = binding["spec"], binding["metadata"]
    assert spec["suspension"] == {"scheduling": True}
    assert {"clusters", "replicas", "replicaRequirements", "components"}.isdisjoint(spec)
    assert (spec["resource"]["apiVersion"], spec["resource"]["kind"]) == ("batch.volcano.sh/v1alpha1", "Job")
    assert (spec["resource"]["name"], spec["resource"]["uid"]) == ("train", template["uid"])
    assert spec["placement"]["spreadConstraints"] == [{"maxGroups": 1, "minGroups": 1, "spreadByField": "cluster"}]
    assert (spec["schedulerName"], spec["conflictResolution"]) == ("default-scheduler", "Abort")
    owners = [
        (reference["kind"], reference["uid"], reference["controller"]) for reference in metadata["ownerReferences"]
    ]
    assert owners == [("Job", template["uid"], True)]
    assert metadata["labels"][CLAIM] == template["labels"][CLAIM]
    assert "resourcebinding.karmada.io/permanent-id" in metadata["labels"]
    assert metadata["finalizers"] == ["karmada.io/binding-controller"]


def test_suspended_binding_has_no_status_and_no_works(harness):
    harness.propagate()
    harness.submit("train")
    harness.wait_for_binding()
    harness.touch()
    harness.wait_for_detector()
    harness.run("after")
    assert "status" not in harness.binding()
    assert (harness.targets(), harness.works_of("train")) == ([], [])


def test_resumed_job_runs_on_its_preset_cluster(harness):
    harness.propagate()
    harness.submit("train", annotations={"volcano-global.io/runtime": "2s"})
    harness.wait_for_binding()
    harness.resume("train", "member2")
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


def test_job_without_preset_goes_to_first_cluster_by_name(harness):
    harness.propagate()
    harness.submit("train", replicas=1, cpu="200")
    harness.wait_for_binding()
    harness.resume()
    harness.wait_for_targets("member1")
    harness.wait_for_phase("Pending")


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
    harness.submit("train")
    harness.wait_for_binding()
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
    harness.submit("train", annotations=LONG)
    harness.wait_for_binding()
    harness.resume("train", "member1")
    harness.wait_for_conditions(Scheduled="Success", FullyApplied="FullyAppliedFailed")
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
    binding = harness.wait_for_binding()
    assert (binding["spec"]["suspension"], harness.targets()) == ({"scheduling": True}, [])


def test_deleted_job_deletes_binding_and_works(harness):
    harness.propagate()
    harness.run()
    harness.api.delete(f"{harness.jobs}/train")
    harness.wait(lambda: harness.binding() is None and not harness.works("member1"), "all gone")


def test_unclaimed_binding_is_not_scheduled_until_claimed(harness):
    harness.propagate()
    harness.submit("train")
    harness.wait_for_binding()
    harness.api.delete(f"{harness.policies}/jobs")
    harness.wait(lambda: CLAIM not in harness.binding()["metadata"]["labels"], "binding released")
    harness.wait(lambda: CLAIM not in harness.job()["metadata"].get("labels", {}), "template released")
    harness.resume()
    harness.propagate("others", clusters=["member2"])
    harness.run("after", "member2")
    harness.wait_for_targets("member2")
    assert CLAIM in harness.binding()["metadata"]["labels"]


def test_second_kind_of_equal_name_waits_for_the_binding(harness):
    harness.propagate()
    harness.propagate("plain", kind="Job", resourceSelectors=[{"apiVersion": "batch/v1", "kind": "Job"}])
    harness.run()
    pods = job("x")["spec"]["tasks"][0]["template"]
    spec = {"template": {"spec": {**pods["spec"], "restartPolicy": "Never"}}}
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


def test_cluster_scoped_template_has_a_cluster_binding(harness):
    name = f"class-{harness.namespace}"
    harness.make(
        CLASSES, {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 7}
    )
    selector = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "name": name}
    harness.make(CLUSTER_POLICIES, cluster_policy(name, selector))
    path = f"{CRBS}/{name}-priorityclass"
    harness.wait(lambda: (harness.look(path) or {}).get("spec", {}).get("clusters"), "binding placed")
    binding = harness.api.get(path)
    assert sorted(cluster["name"] for cluster in binding["spec"]["clusters"]) == ["member1", "member2"]
    assert "suspension" not in binding["spec"]

    def works():
        found = harness.api.get("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-member1/works")["items"]
        note = "clusterresourcebinding.karmada.io/name"
        return [item for item in found if item["metadata"].get("annotations", {}).get(note) == f"{name}-priorityclass"]

    harness.wait(works, "its work")


def test_namespaces_are_propagated_by_works_without_binding(harness):
    def sent(cluster):
        found = harness.api.get(f"/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{cluster}/works")["items"]
        manifests = [(item, item["spec"]["workload"]["manifests"][0]) for item in found]
        return [
            work
            for work, one in manifests
            if (one["kind"], one["metadata"]["name"]) == ("Namespace", harness.namespace)
        ]

    harness.wait(lambda: sent("member1") and sent("member2"), "works of the namespace")
    assert all(
        "resourcebinding.karmada.io/name" not in item["metadata"].get("annotations", {}) for item in sent("member1")
    )


def test_restart_of_karmada_leaves_running_jobs_unchanged(stack, harness):
    harness.propagate()
    harness.run()
    status, works = harness.job()["status"], harness.works_of("train")
    stack.karmada.stop()
    stack.karmada.start()
    harness.run("after")
    assert harness.job()["status"] == status
    assert harness.works_of("train") == works
