"""The stand-in on a real API server: a job's whole way, and what must not happen on it."""

import pytest

from localup.api import ApiError
from localup.apply import wait_until

JOBS = "/apis/batch.volcano.sh/v1alpha1"
WORKS = "/apis/work.karmada.io"
POLICIES = "/apis/policy.karmada.io/v1alpha1"


def job(name, *, replicas=2, cpu="1", annotations=None, **spec):
    pods = {"spec": {"containers": [{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}]}}
    tasks = [{"name": "worker", "replicas": replicas, "template": pods}]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"minAvailable": replicas, "tasks": tasks, **spec},
    }


def policy(name="jobs", *, clusters=("member1", "member2"), spread=True, kind="Job", **spec):
    placement = {"clusterAffinity": {"clusterNames": list(clusters)}}
    placement |= {"spreadConstraints": [{"maxGroups": 1, "minGroups": 1}]} if spread else {}
    version = "batch.volcano.sh/v1alpha1" if kind == "Job" else "apps/v1"
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name},
        "spec": {"placement": placement, "resourceSelectors": [{"apiVersion": version, "kind": kind}], **spec},
    }


class Desk:
    """What a test does and looks at in its namespace."""

    def __init__(self, api, namespace):
        self.api = api
        self.namespace = namespace

    def create(self, root, plural, manifest):
        return self.api.create(f"{root}/namespaces/{self.namespace}/{plural}", manifest)

    def submit(self, manifest):
        return self.create(JOBS, "jobs", manifest)

    def template(self, name):
        return self.api.get(f"{JOBS}/namespaces/{self.namespace}/jobs/{name}")

    def phase(self, name):
        return self.template(name).get("status", {}).get("state", {}).get("phase")

    def binding_path(self, name):
        return f"{WORKS}/v1alpha2/namespaces/{self.namespace}/resourcebindings/{name}"

    def binding(self, name):
        try:
            return self.api.get(self.binding_path(name))
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def works(self, cluster):
        found = self.api.get(f"{WORKS}/v1alpha1/namespaces/karmada-es-{cluster}/works")["items"]
        note = "resourcebinding.karmada.io/namespace"
        return [each for each in found if each["metadata"]["annotations"][note] == self.namespace]

    def wait_for_phase(self, name, phase):
        wait_until(lambda: self.phase(name) == phase, f"job {name} {phase}", seconds=10)


@pytest.fixture
def desk(plane, team):
    return Desk(plane.admin, team)


def test_a_job_runs_and_completes(desk):
    desk.create(POLICIES, "propagationpolicies", policy())
    desk.submit(job("train"))
    desk.wait_for_phase("train", "Running")
    binding = desk.binding("train-job")
    assert [each["name"] for each in binding["spec"]["clusters"]] == ["member1"]
    assert {each["type"]: each["status"] for each in binding["status"]["conditions"]} == {
        "Scheduled": "True",
        "FullyApplied": "True",
    }
    assert [work["spec"]["workload"]["manifests"][0]["metadata"]["name"] for work in desk.works("member1")] == ["train"]
    desk.wait_for_phase("train", "Completed")
    assert desk.template("train")["status"]["succeeded"] == 2


def test_a_suspended_binding_is_left_alone(desk):
    nobody = desk.create(POLICIES, "propagationpolicies", policy(schedulerName="nobody"))
    desk.submit(job("train"))
    wait_until(lambda: desk.binding("train-job"), "binding made")
    desk.api.merge(desk.binding_path("train-job"), {"spec": {"suspension": {"scheduling": True}}})
    path = f"{POLICIES}/namespaces/{desk.namespace}/propagationpolicies/{nobody['metadata']['name']}"
    desk.api.merge(path, {"spec": {"schedulerName": "default-scheduler"}})
    wait_until(lambda: desk.binding("train-job")["spec"]["schedulerName"] == "default-scheduler", "policy followed")
    desk.submit(job("after"))
    desk.wait_for_phase("after", "Running")
    waiting = desk.binding("train-job")
    assert "status" not in waiting
    assert "clusters" not in waiting["spec"]


def test_the_pick_of_whoever_resumes_a_binding_is_confirmed(desk):
    desk.create(POLICIES, "propagationpolicies", policy(schedulerName="nobody"))
    desk.submit(job("train"))
    wait_until(lambda: desk.binding("train-job"), "binding made")
    picked = {"schedulerName": "default-scheduler", "clusters": [{"name": "member2"}]}
    desk.api.merge(desk.binding_path("train-job"), {"spec": picked})
    desk.wait_for_phase("train", "Running")
    assert desk.binding("train-job")["spec"]["clusters"] == [{"name": "member2"}]


def test_an_eviction_stops_the_job_and_its_status_stays(desk):
    desk.create(POLICIES, "propagationpolicies", policy())
    desk.submit(job("train", annotations={"volcano-global.io/runtime": "1h"}))
    desk.wait_for_phase("train", "Running")
    evicted = {"suspension": {"scheduling": True}, "clusters": None}
    desk.api.merge(desk.binding_path("train-job"), {"spec": evicted})
    wait_until(lambda: not desk.works("member1"), "work removed")
    wait_until(lambda: "aggregatedStatus" not in desk.binding("train-job")["status"], "status cleared")
    assert desk.phase("train") == "Running"
    desk.api.merge(desk.binding_path("train-job"), {"spec": {"suspension": {"scheduling": False}}})
    wait_until(lambda: desk.works("member1"), "work made again")


def test_a_failing_job_fails(desk):
    desk.create(POLICIES, "propagationpolicies", policy())
    told = {"volcano-global.io/outcome": "Failed", "volcano-global.io/runtime": "100ms"}
    desk.submit(job("train", annotations=told))
    desk.wait_for_phase("train", "Failed")
    assert desk.binding("train-job")["status"]["aggregatedStatus"][0]["health"] == "Unhealthy"


def test_a_gang_waits_in_its_member_for_room(desk):
    desk.create(POLICIES, "propagationpolicies", policy(clusters=["member3"]))
    desk.submit(job("first", cpu="1", replicas=2))
    desk.wait_for_phase("first", "Running")
    desk.submit(job("second", cpu="1", replicas=2))
    desk.wait_for_phase("second", "Pending")
    desk.wait_for_phase("second", "Running")
    assert desk.phase("first") == "Completed"


def test_the_summary_follows_what_runs(desk):
    def allocated(cpu):
        return desk.api.get("/apis/cluster.karmada.io/v1alpha1/clusters/member2")["status"]["resourceSummary"].get(
            "allocated"
        ) == ({"cpu": cpu, "pods": "3"} if cpu else None)

    desk.create(POLICIES, "propagationpolicies", policy(clusters=["member2"]))
    desk.submit(job("train", replicas=3, cpu="1500m"))
    wait_until(lambda: allocated("4500m"), "use shown")
    wait_until(lambda: allocated(None), "use gone")


def test_no_cluster_fits(desk):
    desk.create(POLICIES, "propagationpolicies", policy(clusters=["elsewhere"]))
    desk.submit(job("train"))
    wait_until(lambda: (desk.binding("train-job") or {}).get("status"), "a verdict")
    binding = desk.binding("train-job")
    assert binding["status"]["conditions"][0]["reason"] == "NoClusterFit"
    assert "clusters" not in binding["spec"]


def test_without_a_spread_constraint_a_job_runs_everywhere(desk):
    desk.create(POLICIES, "propagationpolicies", policy(spread=False))
    desk.submit(job("train"))
    desk.wait_for_phase("train", "Completed")
    assert [each["name"] for each in desk.binding("train-job")["spec"]["clusters"]] == ["member1", "member2"]


def test_dispatching_that_the_policy_suspends_keeps_the_job_out(desk):
    desk.create(POLICIES, "propagationpolicies", policy(suspension={"dispatching": True}))
    desk.submit(job("train"))
    wait_until(lambda: desk.works("member1") and desk.works("member1")[0].get("status"), "work held")
    assert desk.works("member1")[0]["status"]["conditions"][0]["reason"] == "SuspendDispatching"
    assert desk.phase("train") is None


def test_a_deleted_job_leaves_nothing(desk):
    desk.create(POLICIES, "propagationpolicies", policy())
    desk.submit(job("train", annotations={"volcano-global.io/runtime": "1h"}))
    desk.wait_for_phase("train", "Running")
    desk.api.delete(f"{JOBS}/namespaces/{desk.namespace}/jobs/train")
    wait_until(lambda: desk.binding("train-job") is None and not desk.works("member1"), "all gone", seconds=20)


def test_without_its_policy_a_binding_is_nobodys(desk):
    desk.create(POLICIES, "propagationpolicies", policy(clusters=["elsewhere"]))
    desk.submit(job("train"))
    wait_until(lambda: (desk.binding("train-job") or {}).get("status"), "a verdict")
    label = "propagationpolicy.karmada.io/permanent-id"
    assert label in desk.template("train")["metadata"]["labels"]
    desk.api.delete(f"{POLICIES}/namespaces/{desk.namespace}/propagationpolicies/jobs")
    wait_until(lambda: label not in desk.binding("train-job")["metadata"]["labels"], "binding released")
    wait_until(lambda: label not in desk.template("train")["metadata"].get("labels", {}), "template released")


def test_a_deployment_is_divided(desk):
    desk.create(
        POLICIES,
        "propagationpolicies",
        policy(
            kind="Deployment",
            spread=False,
            placement={
                "clusterAffinity": {"clusterNames": ["member1", "member2"]},
                "replicaScheduling": {
                    "replicaSchedulingType": "Divided",
                    "replicaDivisionPreference": "Weighted",
                    "weightPreference": {"dynamicWeight": "AvailableReplicas"},
                },
            },
        ),
    )
    pods = job("x")["spec"]["tasks"][0]["template"]
    labels = {"app": "web"}
    spec = {"replicas": 6, "selector": {"matchLabels": labels}, "template": pods | {"metadata": {"labels": labels}}}
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    desk.create("/apis/apps/v1", "deployments", manifest)
    path = f"/apis/apps/v1/namespaces/{desk.namespace}/deployments/web"
    wait_until(lambda: desk.api.get(path)["status"].get("readyReplicas") == 6, "deployment ready")
    assert sum(each["replicas"] for each in desk.binding("web-deployment")["spec"]["clusters"]) == 6
