"""The stand-in on a real API server."""

import signal

import pytest

from localup.api import ApiError
from localup.apply import wait_until
from tests.localup.karmada.harness import CLUSTERS, create_cluster, job

RULES = "/apis/admissionregistration.k8s.io/v1"
LONG = {"volcano-global.io/runtime": "1h"}
PLACED = {"Scheduled": "Success", "FullyApplied": "FullyAppliedSuccess"}


def test_a_job_runs_and_completes(harness):
    harness.propagate()
    harness.submit("train")
    harness.wait_for_phase("Running")
    harness.wait_for_conditions(**PLACED)
    assert harness.targets() == ["member1"]
    assert [work["metadata"]["name"][:6] for work in harness.works("member1")] == ["train-"]
    harness.wait_for_phase("Completed")
    assert harness.job()["status"]["succeeded"] == 2


def test_suspended_binding_is_not_scheduled(harness):
    harness.propagate(schedulerName="nobody")
    harness.submit("train")
    harness.wait_for_binding()
    harness.change_binding(suspension={"scheduling": True})
    harness.api.merge(f"{harness.policies}/jobs", {"spec": {"schedulerName": "default-scheduler"}})
    wait_until(lambda: harness.binding()["spec"]["schedulerName"] == "default-scheduler", "policy followed")
    harness.submit("after")
    harness.wait_for_phase("Running", "after")
    assert "status" not in harness.binding()
    assert harness.targets() == []


def test_preset_cluster_is_confirmed(harness):
    harness.propagate(schedulerName="nobody")
    harness.submit("train")
    harness.wait_for_binding()
    harness.change_binding(schedulerName="default-scheduler", clusters=[{"name": "member2"}])
    harness.wait_for_phase("Running")
    harness.wait_for_conditions(**PLACED)
    assert harness.targets() == ["member2"]


def test_eviction_stops_the_job_and_keeps_its_status(harness):
    harness.propagate()
    harness.submit("train", annotations=LONG)
    harness.wait_for_phase("Running")
    harness.wait_for_conditions(**PLACED)
    harness.change_binding(suspension={"scheduling": True}, clusters=None)
    harness.wait_for_conditions(Scheduled="Success", FullyApplied="FullyAppliedFailed")
    assert harness.works("member1") == []
    assert "aggregatedStatus" not in harness.binding()["status"]
    assert harness.phase() == "Running"
    harness.change_binding(suspension={"scheduling": False})
    harness.wait_for_conditions(**PLACED)


def test_a_failing_job_fails(harness):
    harness.propagate()
    harness.submit("train", annotations={"volcano-global.io/outcome": "Failed", "volcano-global.io/runtime": "100ms"})
    harness.wait_for_phase("Failed")
    assert harness.binding()["status"]["aggregatedStatus"][0]["health"] == "Unhealthy"


def test_gang_is_pending_in_its_member_until_it_fits(harness):
    harness.propagate(clusters=["member3"])
    harness.submit("first", cpu="1", replicas=2)
    harness.wait_for_phase("Running", "first")
    harness.submit("second", cpu="1", replicas=2)
    harness.wait_for_phase("Pending", "second")
    harness.wait_for_phase("Running", "second")
    assert harness.phase("first") == "Completed"


def test_summary_follows_running_jobs(harness):
    def allocated():
        return harness.api.get(f"{CLUSTERS}/member2")["status"]["resourceSummary"].get("allocated")

    wait_until(lambda: allocated() is None, "member empty")
    harness.propagate(clusters=["member2"])
    harness.submit("train", replicas=3, cpu="1500m")
    wait_until(lambda: allocated() == {"cpu": "4500m", "pods": "3"}, "use shown")
    wait_until(lambda: allocated() is None, "use gone")


def test_nonexistent_cluster_is_infeasible(harness):
    harness.propagate(clusters=["elsewhere"])
    harness.submit("train")
    harness.wait_for_conditions(Scheduled="NoClusterFit")
    assert harness.targets() == []


def test_ready_cluster_gets_unschedulable_bindings(harness):
    create_cluster(harness.api, "late", {"cpu": "4"}, ready="False")
    harness.propagate(clusters=["late"])
    harness.submit("train")
    harness.wait_for_conditions(Scheduled="NoClusterFit")
    told = {"metadata": {"annotations": {"standin.volcano-global.io/ready": "True"}}}
    harness.api.merge(f"{CLUSTERS}/late", told)
    harness.wait_for_phase("Running")


def test_job_without_spread_constraint_runs_everywhere(harness):
    harness.propagate(spread=False)
    harness.submit("train")
    harness.wait_for_phase("Completed")
    assert harness.targets() == ["member1", "member2"]


def test_suspended_dispatching_blocks_the_job(harness):
    harness.propagate(suspension={"dispatching": True})
    harness.submit("train")
    harness.wait_for_conditions(Scheduled="Success", FullyApplied="FullyAppliedFailed")
    assert harness.works("member1")[0]["spec"]["suspendDispatching"]
    assert harness.phase() is None


def test_a_deleted_job_leaves_nothing(harness):
    harness.propagate()
    harness.submit("train", annotations=LONG)
    harness.wait_for_phase("Running")
    harness.api.delete(f"{harness.jobs}/train")
    wait_until(lambda: harness.binding() is None and not harness.works("member1"), "all gone")


def test_binding_without_policy_is_unclaimed(harness):
    label = "propagationpolicy.karmada.io/permanent-id"
    harness.propagate(clusters=["elsewhere"])
    harness.submit("train")
    harness.wait_for_binding()
    assert label in harness.job()["metadata"]["labels"]
    harness.api.delete(f"{harness.policies}/jobs")
    wait_until(lambda: label not in harness.binding()["metadata"]["labels"], "binding released")
    wait_until(lambda: label not in harness.job()["metadata"].get("labels", {}), "template released")


def test_template_change_reaches_a_suspended_binding(harness):
    harness.propagate(clusters=["member2"])
    harness.submit("train", annotations=LONG)
    harness.wait_for_phase("Running")
    harness.change_binding(suspension={"scheduling": True})
    spec = harness.job()["spec"]
    larger = [spec["tasks"][0] | {"replicas": 4}]
    harness.api.merge(f"{harness.jobs}/train", {"spec": {"tasks": larger}})
    wait_until(lambda: harness.job()["status"].get("running") == 4, "more pods")


def test_a_deployment_is_divided(harness):
    by_room = {"replicaDivisionPreference": "Weighted", "weightPreference": {"dynamicWeight": "AvailableReplicas"}}
    affinity = {"clusterNames": ["member1", "member2"]}
    placement = {"clusterAffinity": affinity, "replicaScheduling": {"replicaSchedulingType": "Divided", **by_room}}
    harness.propagate(kind="Deployment", placement=placement)
    pods = job("x")["spec"]["tasks"][0]["template"] | {"metadata": {"labels": {"app": "web"}}}
    spec = {"replicas": 6, "selector": {"matchLabels": {"app": "web"}}, "template": pods}
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    path = f"/apis/apps/v1/namespaces/{harness.namespace}/deployments"
    harness.api.create(path, manifest)
    wait_until(lambda: harness.api.get(f"{path}/web")["status"].get("readyReplicas") == 6, "deployment ready")
    targets = harness.api.get(f"{harness.bindings}/web-deployment")["spec"]["clusters"]
    assert [target["name"] for target in targets] == ["member1", "member2"]


@pytest.fixture
def refused(harness):
    """Reject the namespace's bindings as if a webhook were down; yield a function that ends this."""
    rule = {"apiGroups": ["work.karmada.io"], "apiVersions": ["*"], "resources": ["resourcebindings"]}
    policy = {
        "matchConstraints": {"resourceRules": [rule | {"operations": ["CREATE"]}]},
        "matchConditions": [{"name": "here", "expression": f"request.namespace == '{harness.namespace}'"}],
        "validations": [{"expression": "false"}],
    }
    binding = {"policyName": harness.namespace, "validationActions": ["Deny"]}
    parts = {"validatingadmissionpolicies": policy, "validatingadmissionpolicybindings": binding}
    for plural, spec in parts.items():
        harness.api.create(f"{RULES}/{plural}", {"metadata": {"name": harness.namespace}, "spec": spec})
    resource = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}
    probe = {"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": {"name": "probe"}}

    def is_refused():
        try:
            harness.api.create(f"{harness.bindings}?dryRun=All", probe | {"spec": {"resource": resource}})
        except ApiError:
            return True
        return False

    def allow():
        for plural in reversed(parts):
            harness.api.delete(f"{RULES}/{plural}/{harness.namespace}")

    wait_until(is_refused, "bindings refused")
    return allow


def test_rejected_binding_is_created_once_allowed(harness, refused):
    harness.propagate()
    harness.submit("train")
    wait_until(lambda: harness.job()["metadata"].get("labels"), "template claimed")
    assert harness.binding() is None
    refused()
    harness.wait_for_phase("Completed")


def test_stand_in_continues_after_a_restart(harness, stand_in):
    harness.propagate()
    harness.submit("train", annotations=LONG)
    harness.wait_for_phase("Running")
    harness.wait_for_conditions(**PLACED)
    status, work = harness.job()["status"], harness.works("member1")[0]
    process = stand_in.service._process
    stand_in.service.signal(signal.SIGTERM)
    assert process.wait(5) == 0
    stand_in.start()
    harness.submit("after")
    harness.wait_for_phase("Completed", "after")
    assert harness.job()["status"] == status
    assert work in harness.works("member1")


def test_bindings_and_templates_get_core_events(harness):
    harness.propagate()
    harness.submit("train")
    harness.wait_for_phase("Completed")
    path = f"/apis/events.k8s.io/v1/namespaces/{harness.namespace}/events"
    wait_until(lambda: len(harness.api.get(path)["items"]) >= 3, "events", seconds=10)
    told = {(item["regarding"]["kind"], item["reason"]) for item in harness.api.get(path)["items"]}
    assert told >= {
        ("Job", "ApplyPolicySucceed"),
        ("Job", "ScheduleBindingSucceed"),
        ("ResourceBinding", "ScheduleBindingSucceed"),
    }
    found = next(item for item in harness.api.get(path)["items"] if item["reason"] == "ScheduleBindingSucceed")
    assert found["eventTime"] is None
    assert "deprecatedSource" in found
