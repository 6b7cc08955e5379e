"""From the template to the binding and on to the works, and what survives on the way."""

from tests.karmada.harness import DEPLOYMENTS, LONG, cluster_policy
from tests.localup.karmada.harness import job

CRBS = "/apis/work.karmada.io/v1alpha2/clusterresourcebindings"
CLUSTER_POLICIES = "/apis/policy.karmada.io/v1alpha1/clusterpropagationpolicies"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CLAIM = "propagationpolicy.karmada.io/permanent-id"
PLACED = {"Scheduled": "Success", "FullyApplied": "FullyAppliedSuccess"}


def test_a_job_gets_a_binding_that_is_paused_and_says_nothing_of_its_size(desk):
    desk.propagate()
    desk.submit("train", replicas=3)
    binding = desk.wait_for_binding()
    template = desk.job()["metadata"]
    spec, metadata = binding["spec"], binding["metadata"]
    assert spec["suspension"] == {"scheduling": True}
    assert {"clusters", "replicas", "replicaRequirements", "components"}.isdisjoint(spec)
    assert (spec["resource"]["apiVersion"], spec["resource"]["kind"]) == ("batch.volcano.sh/v1alpha1", "Job")
    assert (spec["resource"]["name"], spec["resource"]["uid"]) == ("train", template["uid"])
    assert spec["placement"]["spreadConstraints"] == [{"maxGroups": 1, "minGroups": 1, "spreadByField": "cluster"}]
    assert (spec["schedulerName"], spec["conflictResolution"]) == ("default-scheduler", "Abort")
    owners = [(each["kind"], each["uid"], each["controller"]) for each in metadata["ownerReferences"]]
    assert owners == [("Job", template["uid"], True)]
    assert metadata["labels"][CLAIM] == template["labels"][CLAIM]
    assert "resourcebinding.karmada.io/permanent-id" in metadata["labels"]
    assert metadata["finalizers"] == ["karmada.io/binding-controller"]


def test_a_paused_binding_has_no_status_and_no_works_whatever_happens_to_its_template(desk):
    desk.propagate()
    desk.submit("train")
    desk.wait_for_binding()
    desk.touch()
    desk.wait_for_detector()
    desk.run("after")
    assert "status" not in desk.binding()
    assert (desk.targets(), desk.works_of("train")) == ([], [])


def test_a_resumed_job_runs_where_it_was_picked_for_and_its_status_comes_back(desk):
    desk.propagate()
    desk.submit("train", annotations={"volcano-global.io/runtime": "2s"})
    desk.wait_for_binding()
    desk.resume("train", "member2")
    desk.wait_for_phase("Running")
    desk.wait_for_conditions(**PLACED)
    binding = desk.binding()
    assert desk.targets() == ["member2"]
    assert len(desk.works_of("train", "member2")) == 1
    item = binding["status"]["aggregatedStatus"][0]
    assert (item["clusterName"], item["applied"], item["health"]) == ("member2", True, "Healthy")
    assert binding["status"]["schedulerObservedGeneration"] == binding["metadata"]["generation"]
    assert '"spreadByField":"cluster"' in binding["metadata"]["annotations"]["policy.karmada.io/applied-placement"]
    desk.wait_for_phase("Completed")
    assert desk.binding()["status"]["aggregatedStatus"][0]["health"] == "Healthy"


def test_resumed_without_a_pick_a_job_goes_to_the_first_cluster_by_name_however_large_it_is(desk):
    desk.propagate()
    desk.submit("train", replicas=1, cpu="200")
    desk.wait_for_binding()
    desk.resume()
    desk.wait_for_targets("member1")
    desk.wait_for_phase("Pending")


def test_our_fields_survive_the_detector_and_its_own_are_put_right(desk):
    desk.propagate()
    desk.run("train", "member2")
    desk.api.merge(f"{desk.bindings}/train-job", {"metadata": {"annotations": {"ours": "1"}, "labels": {"ours": "1"}}})
    desk.change_binding(suspension={"scheduling": True, "dispatching": True}, schedulerName="somebody")
    desk.touch()
    desk.wait_for_detector()
    desk.wait(lambda: desk.binding()["spec"]["schedulerName"] == "default-scheduler", "scheduler's name put right")
    binding = desk.binding()
    assert binding["metadata"]["annotations"]["ours"] == binding["metadata"]["labels"]["ours"] == "1"
    assert binding["spec"]["suspension"] == {"scheduling": True}
    assert desk.targets() == ["member2"]


def test_a_pause_outlives_every_change_of_the_policy(desk):
    desk.propagate()
    desk.submit("train")
    desk.wait_for_binding()
    desk.change_policy(suspension={"dispatching": True})
    desk.wait(lambda: desk.binding()["spec"]["suspension"].get("dispatching"), "dispatching suspended")
    assert desk.binding()["spec"]["suspension"]["scheduling"]
    desk.change_policy(suspension=None, placement={"clusterAffinity": {"clusterNames": ["member2"]}})
    desk.wait(lambda: "dispatching" not in desk.binding()["spec"]["suspension"], "dispatching free")
    binding = desk.binding()["spec"]
    assert (binding["suspension"], desk.targets()) == ({"scheduling": True}, [])
    assert binding["placement"]["clusterAffinity"]["clusterNames"] == ["member2"]


def test_dispatching_that_the_policy_suspends_keeps_an_admitted_job_out_until_it_is_free(desk):
    desk.propagate(suspension={"dispatching": True})
    desk.submit("train", annotations=LONG)
    desk.wait_for_binding()
    desk.resume("train", "member1")
    desk.wait_for_conditions(Scheduled="Success", FullyApplied="FullyAppliedFailed")
    assert desk.works_of("train")[0]["spec"]["suspendDispatching"]
    assert desk.phase() is None
    desk.change_policy(suspension=None)
    desk.wait_for_phase("Running")
    assert desk.binding()["spec"]["suspension"] == {"scheduling": False}


def test_a_deleted_binding_comes_back_paused_when_its_template_changes(desk):
    desk.propagate()
    desk.run()
    desk.api.delete(f"{desk.bindings}/train-job")
    desk.wait(lambda: desk.binding() is None and not desk.works_of("train"), "binding and works gone")
    desk.run("after")
    assert desk.binding() is None
    desk.touch()
    binding = desk.wait_for_binding()
    assert (binding["spec"]["suspension"], desk.targets()) == ({"scheduling": True}, [])


def test_a_deleted_job_takes_everything_with_it(desk):
    desk.propagate()
    desk.run()
    desk.api.delete(f"{desk.jobs}/train")
    desk.wait(lambda: desk.binding() is None and not desk.works("member1"), "all gone")


def test_without_its_policy_a_binding_is_nobodys_and_resuming_it_does_nothing_until_there_is_one(desk):
    desk.propagate()
    desk.submit("train")
    desk.wait_for_binding()
    desk.api.delete(f"{desk.policies}/jobs")
    desk.wait(lambda: CLAIM not in desk.binding()["metadata"]["labels"], "binding released")
    desk.wait(lambda: CLAIM not in desk.job()["metadata"].get("labels", {}), "template released")
    desk.resume()
    desk.propagate("others", clusters=["member2"])
    desk.run("after", "member2")
    desk.wait_for_targets("member2")
    assert CLAIM in desk.binding()["metadata"]["labels"]


def test_two_kinds_of_one_name_share_a_binding_and_the_second_waits_for_it(desk):
    desk.propagate()
    desk.propagate("plain", kind="Job", resourceSelectors=[{"apiVersion": "batch/v1", "kind": "Job"}])
    desk.run()
    pods = job("x")["spec"]["tasks"][0]["template"]
    spec = {"template": {"spec": {**pods["spec"], "restartPolicy": "Never"}}}
    path = f"/apis/batch/v1/namespaces/{desk.namespace}/jobs"
    desk.api.create(path, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec})
    desk.wait(lambda: desk.api.get(f"{path}/train")["metadata"].get("labels", {}).get(CLAIM), "the second claimed")
    assert desk.binding()["spec"]["resource"]["apiVersion"] == "batch.volcano.sh/v1alpha1"
    desk.api.delete(f"{desk.jobs}/train")
    desk.wait(
        lambda: (desk.binding() or {}).get("spec", {}).get("resource", {}).get("apiVersion") == "batch/v1",
        "the binding of the second",
    )
    desk.api.delete(f"{path}/train?propagationPolicy=Background")


def test_what_a_deployment_depends_on_has_a_binding_of_its_own_that_follows_and_is_not_paused(desk):
    desk.propagate(kind="Deployment", propagateDeps=True)
    maps = f"/api/v1/namespaces/{desk.namespace}/configmaps"
    desk.api.create(
        maps, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}}
    )
    pods = job("x")["spec"]["tasks"][0]["template"]
    pods["metadata"] = {"labels": {"app": "web"}}
    pods["spec"]["volumes"] = [{"name": "settings", "configMap": {"name": "settings"}}]
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": pods}
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    desk.api.create(DEPLOYMENTS.format(desk.namespace), manifest)
    needed = desk.wait(lambda: desk.targets_of("web-deployment"), "deployment placed")
    attached = desk.wait(lambda: desk.look(f"{desk.bindings}/settings-configmap"), "binding of what it depends on")
    assert {"placement", "suspension", "clusters"}.isdisjoint(attached["spec"])
    desk.wait(
        lambda: (
            [each["clusters"] for each in desk.api.get(f"{desk.bindings}/settings-configmap")["spec"]["requiredBy"]]
            == [needed]
        ),
        "the clusters of whoever needs it",
    )
    assert any(label.startswith("resourcebinding.karmada.io/depended-by-") for label in attached["metadata"]["labels"])

    def works():
        found = desk.works(needed[0]["name"])
        return [each for each in found if each["spec"]["workload"]["manifests"][0]["kind"] == "ConfigMap"]

    desk.wait(works, "work of what it depends on")
    desk.api.delete(f"{DEPLOYMENTS.format(desk.namespace)}/web")
    desk.wait(lambda: not works(), "nothing left where it is not needed")
    assert desk.look(f"{desk.bindings}/settings-configmap") is not None
    desk.api.delete(f"{maps}/settings")


def test_what_belongs_to_no_namespace_has_a_binding_that_belongs_to_none(desk):
    name = f"class-{desk.namespace}"
    desk.make(
        CLASSES, {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 7}
    )
    selector = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "name": name}
    desk.make(CLUSTER_POLICIES, cluster_policy(name, selector))
    path = f"{CRBS}/{name}-priorityclass"
    desk.wait(lambda: (desk.look(path) or {}).get("spec", {}).get("clusters"), "binding placed")
    binding = desk.api.get(path)
    assert sorted(each["name"] for each in binding["spec"]["clusters"]) == ["member1", "member2"]
    assert "suspension" not in binding["spec"]

    def works():
        found = desk.api.get("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-member1/works")["items"]
        note = "clusterresourcebinding.karmada.io/name"
        return [each for each in found if each["metadata"].get("annotations", {}).get(note) == f"{name}-priorityclass"]

    desk.wait(works, "its work")


def test_every_member_is_sent_every_namespace_by_a_work_that_belongs_to_no_binding(desk):
    def sent(cluster):
        found = desk.api.get(f"/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{cluster}/works")["items"]
        manifests = [(each, each["spec"]["workload"]["manifests"][0]) for each in found]
        return [
            work for work, one in manifests if (one["kind"], one["metadata"]["name"]) == ("Namespace", desk.namespace)
        ]

    desk.wait(lambda: sent("member1") and sent("member2"), "works of the namespace")
    assert all(
        "resourcebinding.karmada.io/name" not in each["metadata"].get("annotations", {}) for each in sent("member1")
    )
