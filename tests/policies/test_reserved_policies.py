"""Tests what a tenant with Karmada's role `edit` cannot forge or name, on a real API server."""

import pytest

from localup.api import ApiError
from localup.apply import apply_files
from tests.policies.conftest import POLICIES, TEAM, active

RESERVED_POLICIES = POLICIES.parent / "reserved-policies.yaml"
JOBS = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{TEAM}/jobs"
HYPERJOBS = f"/apis/training.volcano.sh/v1alpha1/namespaces/{TEAM}/hyperjobs"
BATCH_HYPERJOBS = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{TEAM}/hyperjobs"
EXECUTION = "karmada-es-member1"
WORKS = "/apis/work.karmada.io/v1alpha1/namespaces/{}/works"

GROUP = "volcano-global.io/group"
FORGED = '{"uid":"u","parts":1,"minAvailable":1,"since":"0001-01-01T00:00:00+23:59"}'


@pytest.fixture(scope="module")
def reserved(plane, tenant):
    """Return the plane once the policies are active."""
    apply_files(plane.admin, RESERVED_POLICIES, RESERVED_POLICIES.parent / "hyperjobs.yaml")
    apply_files(plane.admin, *sorted((RESERVED_POLICIES.parent / "crds").glob("*.yaml")))
    system = {"priorityClassName": "system-node-critical"}
    active(tenant, WORKS.format(TEAM), work(), "volcano-global-works")
    active(tenant, JOBS, job(annotations={GROUP: FORGED}), "volcano-global-hyperjob-parts")
    for path, body in (
        (JOBS, job(**system)),
        (HYPERJOBS, hyperjob(**system)),
        (BATCH_HYPERJOBS, batch_hyperjob(**system)),
    ):
        active(tenant, path, body, "volcano-global-priority-classes")
    return plane


@pytest.fixture(scope="module")
def stage(reserved):
    with reserved.client("volcano-global-hyperjobs") as api:
        yield api


def work(**labels):
    return {
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"generateName": "mine-", "labels": labels},
        "spec": {"workload": {"manifests": []}},
    }


def spec(pod_class=None, **changes):
    pod = {"containers": [{"name": "main", "image": "x"}]} | ({"priorityClassName": pod_class} if pod_class else {})
    return {"tasks": [{"name": "main", "replicas": 1, "template": {"spec": pod}}], **changes}


def made(version, kind, spec, annotations=None):
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"generateName": "mine-", "annotations": annotations or {}},
        "spec": spec,
    }


def job(annotations=None, pod_class=None, **changes):
    return made("batch.volcano.sh/v1alpha1", "Job", spec(pod_class, **changes), annotations)


def hyperjob(pod_class=None, **changes):
    jobs = [{"name": "a", "templateSpec": spec()}, {"name": "b", "templateSpec": spec(pod_class, **changes)}]
    return made("training.volcano.sh/v1alpha1", "HyperJob", {"replicatedJobs": jobs})


def batch_hyperjob(pod_class=None, **changes):
    return made("batch.volcano.sh/v1alpha1", "HyperJob", {"template": {"spec": spec(pod_class, **changes)}})


# -- HyperJobs without limit


@pytest.mark.parametrize("replicas", [(400_000,), (600, 401)], ids=["of-one-job", "of-all-jobs"])
def test_tenant_hyperjob_is_limited_to_1000_parts(reserved, tenant, replicas):
    """The CRD refuses it before any webhook is called; an object of 250 bytes once stopped admission for minutes."""
    jobs = [{"name": f"j{place}", "replicas": count, "templateSpec": spec()} for place, count in enumerate(replicas)]
    with pytest.raises(ApiError, match="1000") as refused:
        tenant.create(HYPERJOBS, hyperjob() | {"spec": {"replicatedJobs": jobs}})
    assert refused.value.status == 422


# -- Works


def test_tenant_cannot_write_a_work_but_delete_it(reserved, tenant):
    made = reserved.admin.create(WORKS.format(TEAM), work())["metadata"]["name"]
    path = f"{WORKS.format(TEAM)}/{made}"
    forged = {"metadata": {"labels": {"resourcebinding.karmada.io/permanent-id": "r"}}}
    for attempt in (
        lambda: tenant.create(WORKS.format(TEAM), work(**{"resourcebinding.karmada.io/permanent-id": "r"})),
        lambda: tenant.merge(path, forged),
        lambda: tenant.merge(f"{path}/status", {"status": {"manifestStatuses": []}}),
        lambda: tenant.merge(path, {"spec": {"suspendDispatching": True}}),
    ):
        with pytest.raises(ApiError, match="only Karmada writes Works"):
            attempt()
    tenant.merge(path, {"metadata": {"finalizers": ["team.example/hold"]}})
    tenant.merge(path, {"metadata": {"finalizers": None}})
    tenant.delete(path)


def test_karmada_and_pull_mode_agents_can_write_works(reserved, karmada):
    """The agent of a pull mode cluster has permissions in the namespace of the cluster only."""
    admin = reserved.admin
    admin.create("/api/v1/namespaces", {"metadata": {"name": EXECUTION}})
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{EXECUTION}"
    rule = {"apiGroups": ["work.karmada.io"], "resources": ["works", "works/status"], "verbs": ["*"]}
    admin.create(f"{rights}/roles", {"metadata": {"name": "agent"}, "rules": [rule]})
    group = "rbac.authorization.k8s.io"
    # Any identity without the verb `admit` stands for the agent.
    subject = {"apiGroup": group, "kind": "User", "name": "volcano-global-webhook"}
    role = {"apiGroup": group, "kind": "Role", "name": "agent"}
    admin.create(f"{rights}/rolebindings", {"metadata": {"name": "agent"}, "roleRef": role, "subjects": [subject]})
    karmada.create(WORKS.format(EXECUTION), work(**{"resourcebinding.karmada.io/permanent-id": "r"}))
    with reserved.client("volcano-global-webhook") as agent:
        made = agent.create(WORKS.format(EXECUTION), work())["metadata"]["name"]
        agent.merge(f"{WORKS.format(EXECUTION)}/{made}/status", {"status": {"conditions": []}})


# -- the annotations of a HyperJob's Jobs


@pytest.mark.parametrize("key", [GROUP, "volcano-global.io/part", "volcano-global.io/preferred-clusters"])
def test_tenant_cannot_write_hyperjob_part_annotations(reserved, tenant, key):
    with pytest.raises(ApiError, match="only volcano-global writes the annotations") as refused:
        tenant.create(JOBS, job(annotations={key: FORGED}))
    assert refused.value.status == 403
    made = tenant.create(JOBS, job())["metadata"]["name"]
    with pytest.raises(ApiError, match="only volcano-global writes the annotations"):
        tenant.merge(f"{JOBS}/{made}", {"metadata": {"annotations": {key: FORGED}}})


@pytest.mark.parametrize("value", ["{}", None], ids=["changed", "removed"])
def test_tenant_cannot_change_hyperjob_part_annotations(reserved, tenant, stage, value):
    made = stage.create(JOBS, job(annotations={GROUP: FORGED}))["metadata"]["name"]
    with pytest.raises(ApiError, match="only volcano-global writes the annotations"):
        tenant.merge(f"{JOBS}/{made}", {"metadata": {"annotations": {GROUP: value}}})
    tenant.merge(f"{JOBS}/{made}", {"metadata": {"annotations": {"team.example/note": "mine"}}})
    stage.merge(f"{JOBS}/{made}", {"metadata": {"annotations": {GROUP: "{}"}}})


def test_tenant_can_write_simulator_annotations(reserved, tenant):
    tenant.create(JOBS, job(annotations={"volcano-global.io/runtime": "90s"}))


# -- PriorityClasses that Kubernetes reserves


@pytest.mark.parametrize(
    ("path", "make"),
    [
        pytest.param(JOBS, job, id="job"),
        pytest.param(HYPERJOBS, hyperjob, id="hyperjob"),
        pytest.param(BATCH_HYPERJOBS, batch_hyperjob, id="hyperjob-as-documented"),
    ],
)
@pytest.mark.parametrize("where", ["priorityClassName", "pod_class"])
def test_tenant_cannot_use_system_priority_classes(reserved, tenant, path, make, where):
    with pytest.raises(ApiError, match="reserved for Kubernetes' own components") as refused:
        tenant.create(path, make(**{where: "system-cluster-critical"}))
    assert refused.value.status == 403
    stored = tenant.create(path, make(**{where: "high"}))
    changed = make(**{where: "system-cluster-critical"})["spec"]
    with pytest.raises(ApiError, match="reserved for Kubernetes' own components"):
        tenant.merge(f"{path}/{stored['metadata']['name']}", {"spec": changed})


def test_stored_job_with_a_system_class_can_be_labelled(reserved, tenant):
    made = reserved.admin.create(JOBS, job(priorityClassName="system-node-critical"))["metadata"]["name"]
    tenant.merge(f"{JOBS}/{made}", {"metadata": {"labels": {"team.example/x": "y"}}})
