"""The stand-in on a real API server: a job's whole way, and what must not happen on it."""

import signal

import pytest

from localup.api import ApiError
from localup.apply import wait_until
from tests.localup.karmada.harness import CLUSTERS, create_cluster, job

RULES = "/apis/admissionregistration.k8s.io/v1"
LONG = {"volcano-global.io/runtime": "1h"}
PLACED = {"Scheduled": "Success", "FullyApplied": "FullyAppliedSuccess"}


def test_a_job_runs_and_completes(desk):
    desk.propagate()
    desk.submit("train")
    desk.wait_for_phase("Running")
    desk.wait_for_conditions(**PLACED)
    assert desk.targets() == ["member1"]
    assert [each["metadata"]["name"][:6] for each in desk.works("member1")] == ["train-"]
    desk.wait_for_phase("Completed")
    assert desk.job()["status"]["succeeded"] == 2


def test_a_suspended_binding_is_left_alone(desk):
    desk.propagate(schedulerName="nobody")
    desk.submit("train")
    desk.wait_for_binding()
    desk.change_binding(suspension={"scheduling": True})
    desk.api.merge(f"{desk.policies}/jobs", {"spec": {"schedulerName": "default-scheduler"}})
    wait_until(lambda: desk.binding()["spec"]["schedulerName"] == "default-scheduler", "policy followed")
    desk.submit("after")
    desk.wait_for_phase("Running", "after")
    assert "status" not in desk.binding()
    assert desk.targets() == []


def test_the_pick_of_whoever_resumes_a_binding_is_confirmed(desk):
    desk.propagate(schedulerName="nobody")
    desk.submit("train")
    desk.wait_for_binding()
    desk.change_binding(schedulerName="default-scheduler", clusters=[{"name": "member2"}])
    desk.wait_for_phase("Running")
    desk.wait_for_conditions(**PLACED)
    assert desk.targets() == ["member2"]


def test_an_eviction_stops_the_job_and_its_status_stays(desk):
    desk.propagate()
    desk.submit("train", annotations=LONG)
    desk.wait_for_phase("Running")
    desk.wait_for_conditions(**PLACED)
    desk.change_binding(suspension={"scheduling": True}, clusters=None)
    desk.wait_for_conditions(Scheduled="Success", FullyApplied="FullyAppliedFailed")
    assert desk.works("member1") == []
    assert "aggregatedStatus" not in desk.binding()["status"]
    assert desk.phase() == "Running"
    desk.change_binding(suspension={"scheduling": False})
    desk.wait_for_conditions(**PLACED)


def test_a_failing_job_fails(desk):
    desk.propagate()
    desk.submit("train", annotations={"volcano-global.io/outcome": "Failed", "volcano-global.io/runtime": "100ms"})
    desk.wait_for_phase("Failed")
    assert desk.binding()["status"]["aggregatedStatus"][0]["health"] == "Unhealthy"


def test_a_gang_waits_in_its_member_for_room(desk):
    desk.propagate(clusters=["member3"])
    desk.submit("first", cpu="1", replicas=2)
    desk.wait_for_phase("Running", "first")
    desk.submit("second", cpu="1", replicas=2)
    desk.wait_for_phase("Pending", "second")
    desk.wait_for_phase("Running", "second")
    assert desk.phase("first") == "Completed"


def test_the_summary_follows_what_runs(desk):
    def allocated():
        return desk.api.get(f"{CLUSTERS}/member2")["status"]["resourceSummary"].get("allocated")

    wait_until(lambda: allocated() is None, "member empty")
    desk.propagate(clusters=["member2"])
    desk.submit("train", replicas=3, cpu="1500m")
    wait_until(lambda: allocated() == {"cpu": "4500m", "pods": "3"}, "use shown")
    wait_until(lambda: allocated() is None, "use gone")


def test_a_cluster_that_does_not_exist_is_no_cluster(desk):
    desk.propagate(clusters=["elsewhere"])
    desk.submit("train")
    desk.wait_for_conditions(Scheduled="NoClusterFit")
    assert desk.targets() == []


def test_a_cluster_that_becomes_ready_takes_what_found_no_cluster(desk):
    create_cluster(desk.api, "late", {"cpu": "4"}, ready="False")
    desk.propagate(clusters=["late"])
    desk.submit("train")
    desk.wait_for_conditions(Scheduled="NoClusterFit")
    told = {"metadata": {"annotations": {"standin.volcano-global.io/ready": "True"}}}
    desk.api.merge(f"{CLUSTERS}/late", told)
    desk.wait_for_phase("Running")


def test_without_a_spread_constraint_a_job_runs_everywhere(desk):
    desk.propagate(spread=False)
    desk.submit("train")
    desk.wait_for_phase("Completed")
    assert desk.targets() == ["member1", "member2"]


def test_dispatching_that_the_policy_suspends_keeps_the_job_out(desk):
    desk.propagate(suspension={"dispatching": True})
    desk.submit("train")
    desk.wait_for_conditions(Scheduled="Success", FullyApplied="FullyAppliedFailed")
    assert desk.works("member1")[0]["spec"]["suspendDispatching"]
    assert desk.phase() is None


def test_a_deleted_job_leaves_nothing(desk):
    desk.propagate()
    desk.submit("train", annotations=LONG)
    desk.wait_for_phase("Running")
    desk.api.delete(f"{desk.jobs}/train")
    wait_until(lambda: desk.binding() is None and not desk.works("member1"), "all gone")


def test_without_its_policy_a_binding_is_nobodys(desk):
    label = "propagationpolicy.karmada.io/permanent-id"
    desk.propagate(clusters=["elsewhere"])
    desk.submit("train")
    desk.wait_for_binding()
    assert label in desk.job()["metadata"]["labels"]
    desk.api.delete(f"{desk.policies}/jobs")
    wait_until(lambda: label not in desk.binding()["metadata"]["labels"], "binding released")
    wait_until(lambda: label not in desk.job()["metadata"].get("labels", {}), "template released")


def test_a_changed_template_reaches_its_cluster_though_the_binding_is_suspended(desk):
    desk.propagate(clusters=["member2"])
    desk.submit("train", annotations=LONG)
    desk.wait_for_phase("Running")
    desk.change_binding(suspension={"scheduling": True})
    spec = desk.job()["spec"]
    larger = [spec["tasks"][0] | {"replicas": 4}]
    desk.api.merge(f"{desk.jobs}/train", {"spec": {"tasks": larger}})
    wait_until(lambda: desk.job()["status"].get("running") == 4, "more pods")


def test_a_deployment_is_divided(desk):
    by_room = {"replicaDivisionPreference": "Weighted", "weightPreference": {"dynamicWeight": "AvailableReplicas"}}
    affinity = {"clusterNames": ["member1", "member2"]}
    placement = {"clusterAffinity": affinity, "replicaScheduling": {"replicaSchedulingType": "Divided", **by_room}}
    desk.propagate(kind="Deployment", placement=placement)
    pods = job("x")["spec"]["tasks"][0]["template"] | {"metadata": {"labels": {"app": "web"}}}
    spec = {"replicas": 6, "selector": {"matchLabels": {"app": "web"}}, "template": pods}
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    path = f"/apis/apps/v1/namespaces/{desk.namespace}/deployments"
    desk.api.create(path, manifest)
    wait_until(lambda: desk.api.get(f"{path}/web")["status"].get("readyReplicas") == 6, "deployment ready")
    targets = desk.api.get(f"{desk.bindings}/web-deployment")["spec"]["clusters"]
    assert [each["name"] for each in targets] == ["member1", "member2"]


@pytest.fixture
def refused(desk):
    """Have the API server refuse the namespace's bindings, as it does while a webhook is down; yield the remedy."""
    rule = {"apiGroups": ["work.karmada.io"], "apiVersions": ["*"], "resources": ["resourcebindings"]}
    policy = {
        "matchConstraints": {"resourceRules": [rule | {"operations": ["CREATE"]}]},
        "matchConditions": [{"name": "here", "expression": f"request.namespace == '{desk.namespace}'"}],
        "validations": [{"expression": "false"}],
    }
    binding = {"policyName": desk.namespace, "validationActions": ["Deny"]}
    parts = {"validatingadmissionpolicies": policy, "validatingadmissionpolicybindings": binding}
    for plural, spec in parts.items():
        desk.api.create(f"{RULES}/{plural}", {"metadata": {"name": desk.namespace}, "spec": spec})
    resource = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}
    probe = {"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": {"name": "probe"}}

    def is_refused():
        try:
            desk.api.create(f"{desk.bindings}?dryRun=All", probe | {"spec": {"resource": resource}})
        except ApiError:
            return True
        return False

    def allow():
        for plural in reversed(parts):
            desk.api.delete(f"{RULES}/{plural}/{desk.namespace}")

    wait_until(is_refused, "bindings refused")
    return allow


def test_a_refused_binding_is_made_once_it_may_be(desk, refused):
    desk.propagate()
    desk.submit("train")
    wait_until(lambda: desk.job()["metadata"].get("labels"), "template claimed")
    assert desk.binding() is None
    refused()
    desk.wait_for_phase("Completed")


def test_it_ends_when_told_to_and_goes_on_where_it_was(desk, stand_in):
    desk.propagate()
    desk.submit("train", annotations=LONG)
    desk.wait_for_phase("Running")
    desk.wait_for_conditions(**PLACED)
    status, work = desk.job()["status"], desk.works("member1")[0]
    process = stand_in.service._process
    stand_in.service.signal(signal.SIGTERM)
    assert process.wait(5) == 0
    stand_in.start()
    desk.submit("after")
    desk.wait_for_phase("Completed", "after")
    assert desk.job()["status"] == status
    assert work in desk.works("member1")


def test_bindings_and_templates_get_core_events(desk):
    desk.propagate()
    desk.submit("train")
    desk.wait_for_phase("Completed")
    path = f"/apis/events.k8s.io/v1/namespaces/{desk.namespace}/events"
    wait_until(lambda: len(desk.api.get(path)["items"]) >= 3, "events", seconds=10)
    told = {(each["regarding"]["kind"], each["reason"]) for each in desk.api.get(path)["items"]}
    assert told >= {
        ("Job", "ApplyPolicySucceed"),
        ("Job", "ScheduleBindingSucceed"),
        ("ResourceBinding", "ScheduleBindingSucceed"),
    }
    found = next(each for each in desk.api.get(path)["items"] if each["reason"] == "ScheduleBindingSucceed")
    assert found["eventTime"] is None
    assert "deprecatedSource" in found


def test_a_failed_job_is_made_again_on_another_cluster(desk):
    failover = {"application": {"decisionConditions": {"tolerationSeconds": 0}}}
    desk.propagate(failover=failover, propagateDeps=True)
    desk.submit("train", annotations={"volcano-global.io/outcome": "Failed", "volcano-global.io/runtime": "100ms"})
    tasks = wait_until(lambda: (desk.binding() or {"spec": {}})["spec"].get("gracefulEvictionTasks"), "taken out")
    assert tasks[0]["reason"] == "ApplicationFailure"
    left = {each["fromCluster"] for each in tasks}
    wait_until(lambda: desk.targets() and not left & set(desk.targets()), "placed elsewhere")
