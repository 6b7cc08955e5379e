"""Tests which users may write bindings, on a real API server."""

import copy

import pytest

from localup.api import APPLY_PATCH, JSON_PATCH, ApiError
from localup.apply import wait_until
from tests.policies.conftest import COLLECTIONS, RECORD, TEAM, suspended_binding

MEMBERS = [{"name": "member1"}]
TASKS = [{"fromCluster": "member1", "reason": "x", "producer": "tenant"}]
CLAIM = "propagationpolicy.karmada.io/permanent-id"


def json_patch(*operations):
    return lambda api, it: api.request("PATCH", it.path, list(operations), content_type=JSON_PATCH)


def merge(body):
    return lambda api, it: api.merge(it.path, body)


def merge_status(body):
    return lambda api, it: api.merge(f"{it.path}/status", body)


def put(change):
    def attempt(api, it):
        body = copy.deepcopy(it.object)
        change(body)
        api.request("PUT", it.path, body)

    return attempt


def put_status(api, it):
    api.request("PUT", f"{it.path}/status", it.object | {"status": {"aggregatedStatus": []}})


def apply(body, *, subresource=""):
    def attempt(api, it):
        whole = {"apiVersion": it.object["apiVersion"], "kind": it.object["kind"], "metadata": {"name": it.name}}
        path = f"{it.path}{subresource}?fieldManager=tenant&force=true"
        api.request("PATCH", path, whole | body, content_type=APPLY_PATCH)

    return attempt


def created(karmada, **resource):
    """Return the path of a new binding without finalizers."""
    new = suspended_binding("ResourceBinding")
    new["spec"]["resource"] |= resource
    del new["metadata"]["finalizers"]
    karmada.create(COLLECTIONS["ResourceBinding"], new)
    return f"{COLLECTIONS['ResourceBinding']}/{new['metadata']['name']}"


def annotated(value):
    return {"metadata": {"annotations": value}}


def labelled(value):
    return {"metadata": {"labels": value}}


ATTACKS = [
    pytest.param(merge({"spec": {"suspension": {"scheduling": False}}}), id="resume-by-merge"),
    pytest.param(merge({"spec": {"suspension": {"scheduling": None}}}), id="resume-by-removing-the-field"),
    pytest.param(
        json_patch({"op": "replace", "path": "/spec/suspension/scheduling", "value": False}), id="resume-by-json-patch"
    ),
    pytest.param(apply({"spec": {"suspension": {"scheduling": False}}}), id="resume-by-apply"),
    pytest.param(put(lambda body: body["spec"].pop("suspension")), id="resume-by-put"),
    pytest.param(merge({"spec": {"clusters": MEMBERS}}), id="clusters-by-merge"),
    pytest.param(merge({"spec": {"gracefulEvictionTasks": TASKS}}), id="eviction-tasks"),
    pytest.param(merge({"spec": {"resource": {"name": "other"}}}), id="resource-of-another-name"),
    pytest.param(merge({"spec": {"preserveResourcesOnDeletion": True}}), id="survive-eviction"),
    pytest.param(merge(annotated({RECORD: '{"charge":{}}'})), id="record-changed"),
    pytest.param(merge(annotated({RECORD: None})), id="record-removed"),
    pytest.param(merge({"metadata": {"annotations": None}}), id="all-annotations-removed"),
    pytest.param(apply(annotated({RECORD: "x"})), id="record-by-apply"),
    pytest.param(merge(annotated({"volcano-global.io/other": "x"})), id="another-annotation-of-ours"),
    pytest.param(merge(annotated({"policy.karmada.io/applied-placement": "{}"})), id="annotation-of-karmada"),
    pytest.param(merge(labelled({CLAIM: None})), id="claim-removed"),
    pytest.param(merge(labelled({CLAIM: "other"})), id="claim-changed"),
    pytest.param(merge(labelled({f"cluster{CLAIM}": None})), id="cluster-claim-removed"),
    pytest.param(merge(labelled({"resourcebinding.karmada.io/permanent-id": "x"})), id="permanent-id-changed"),
    pytest.param(merge({"metadata": {"finalizers": None}}), id="finalizers-removed"),
    pytest.param(merge_status({"status": {"aggregatedStatus": []}}), id="status-by-merge"),
    pytest.param(put_status, id="status-by-put"),
    pytest.param(apply({"status": {"schedulerObservedGeneration": 1}}, subresource="/status"), id="status-by-apply"),
    pytest.param(
        lambda api, it: api.merge(f"{it.path}/status", annotated({RECORD: "x"})), id="record-through-the-status"
    ),
]


@pytest.mark.parametrize("attempt", ATTACKS)
def test_tenant_cannot_change_a_binding(stored, tenant, attempt):
    # If both policies deny, the error may name either.
    with pytest.raises(ApiError, match="ValidatingAdmissionPolicy 'volcano-global-binding") as refused:
        attempt(tenant, stored)
    assert refused.value.status == 403
    assert stored.now() == stored.object


@pytest.mark.smoke
def test_tenant_cannot_create_a_binding(plane, tenant, kind):
    plain = suspended_binding(kind)
    named = suspended_binding(kind)
    named["metadata"]["generateName"] = named["metadata"].pop("name")
    applied = f"{COLLECTIONS[kind]}/{plain['metadata']['name']}?fieldManager=tenant"
    for attempt in (
        lambda: tenant.create(COLLECTIONS[kind], plain),
        lambda: tenant.create(COLLECTIONS[kind], named),
        lambda: tenant.create(f"{COLLECTIONS[kind]}?dryRun=All", plain),
        lambda: tenant.request("PATCH", applied, plain, content_type=APPLY_PATCH),
    ):
        with pytest.raises(ApiError, match="only Karmada creates bindings") as refused:
            attempt()
        assert refused.value.status == 403


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(annotated({"team.example/note": "mine", "checked": "yes"}), id="annotation"),
        pytest.param(labelled({"team.example/cost-centre": "7"}), id="label"),
        pytest.param(
            {"metadata": {"finalizers": ["karmada.io/binding-controller", "team.example/hold"]}}, id="finalizer"
        ),
        pytest.param({"spec": {"suspension": {"scheduling": True}}}, id="nothing"),
    ],
)
def test_tenant_can_label_and_annotate_a_binding(stored, tenant, change):
    tenant.merge(stored.path, change)


def test_deleted_binding_waits_for_karmadas_finalizer(stored, tenant, karmada):
    tenant.delete(stored.path)
    assert "deletionTimestamp" in stored.now()["metadata"]
    with pytest.raises(ApiError, match="only Karmada removes its finalizer"):
        tenant.merge(stored.path, {"metadata": {"finalizers": None}})
    karmada.merge(stored.path, {"metadata": {"finalizers": None}})
    with pytest.raises(ApiError, match="not found"):
        stored.now()


def test_karmada_can_write_bindings(stored, karmada):
    status = {"conditions": [], "aggregatedStatus": [{"clusterName": "member1", "applied": True}]}
    karmada.merge(f"{stored.path}/status", {"status": status})
    karmada.merge(stored.path, {"spec": {"clusters": MEMBERS, "resource": {"resourceVersion": "7", "uid": "u-2"}}})
    karmada.merge(stored.path, annotated({"policy.karmada.io/applied-placement": "{}"}) | labelled({CLAIM: None}))
    karmada.merge(stored.path, {"spec": {"resource": {"apiVersion": "batch.volcano.sh/v1beta1"}}})
    assert stored.now()["status"] == status


@pytest.mark.smoke
def test_controller_admits_and_evicts_in_one_patch(plane, stored):
    admit = [
        {"op": "test", "path": "/metadata/uid", "value": stored.object["metadata"]["uid"]},
        {"op": "test", "path": "/spec/suspension/scheduling", "value": True},
        {"op": "replace", "path": "/spec/suspension/scheduling", "value": False},
        {"op": "add", "path": "/spec/clusters", "value": MEMBERS},
        {"op": "replace", "path": "/metadata/annotations/volcano-global.io~1admission", "value": '{"uid":"x"}'},
    ]
    evict = [
        {"op": "replace", "path": "/spec/suspension/scheduling", "value": True},
        {"op": "remove", "path": "/spec/clusters"},
    ]
    with plane.client("volcano-global-controller") as controller:
        controller.request("PATCH", stored.path, admit, content_type=JSON_PATCH)
        assert stored.now()["spec"]["clusters"] == MEMBERS
        controller.request("PATCH", stored.path, evict, content_type=JSON_PATCH)
    assert stored.now()["spec"] == stored.object["spec"]


VOLCANO_JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"apiVersion": "apps/v1", "kind": "Deployment"}, VOLCANO_JOB, id="ungated-to-gated"),
        pytest.param({"apiVersion": "batch/v1", "kind": "Job"}, VOLCANO_JOB, id="the-same-kind-of-another-group"),
        pytest.param({"apiVersion": "v1", "kind": "Job"}, VOLCANO_JOB, id="core-to-gated"),
        pytest.param(VOLCANO_JOB, {"apiVersion": "apps/v1", "kind": "Deployment"}, id="gated-to-ungated"),
        pytest.param(VOLCANO_JOB, {"apiVersion": "v1", "kind": "Job"}, id="gated-to-core"),
    ],
)
@pytest.mark.parametrize("identity", ["admin", "karmada", "volcano-global-controller"])
def test_kind_of_a_binding_is_immutable(plane, karmada, identity, before, after):
    path = created(karmada, **before)
    with (
        plane.client(identity) as api,
        pytest.raises(ApiError, match="the kind of a binding cannot be changed") as refused,
    ):
        api.merge(path, {"spec": {"resource": after}})
    assert refused.value.status == 403


def test_hyperjob_controller_cannot_admit(plane, karmada):
    """Not even with all permissions of `edit` in a tenant's namespace."""
    path = created(karmada)
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TEAM}/rolebindings"
    group = "rbac.authorization.k8s.io"
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "edit"}
    subject = {"apiGroup": group, "kind": "User", "name": "volcano-global-hyperjobs"}
    plane.admin.create(rights, {"metadata": {"name": "hyperjobs-edit"}, "roleRef": role, "subjects": [subject]})
    with plane.client("volcano-global-hyperjobs") as stage, pytest.raises(ApiError) as refused:
        stage.merge(path, {"spec": {"suspension": {"scheduling": False}}})
    plane.admin.delete(f"{rights}/hyperjobs-edit")
    assert "only Karmada and volcano-global change the spec" in refused.value.message


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
def test_garbage_collector_can_delete_bindings(plane, karmada, propagation):
    owners = f"/api/v1/namespaces/{TEAM}/configmaps"
    owner = plane.admin.create(owners, {"metadata": {"generateName": "owner-"}})["metadata"]
    path = created(karmada)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]}
    references = [reference | {"controller": True, "blockOwnerDeletion": True}]
    karmada.merge(path, {"metadata": {"ownerReferences": references}})
    plane.admin.request("DELETE", f"{owners}/{owner['name']}", {"propagationPolicy": propagation})

    def settled():
        try:
            left = plane.admin.get(path)
        except ApiError:
            return propagation != "Orphan"
        return propagation == "Orphan" and "ownerReferences" not in left["metadata"]

    wait_until(settled, f"{propagation} deletion of the owner")


def test_namespace_with_bindings_can_be_deleted(plane, karmada):
    plane.admin.create("/api/v1/namespaces", {"metadata": {"name": "leaving"}})
    new = suspended_binding("ResourceBinding")
    del new["metadata"]["finalizers"]
    karmada.create("/apis/work.karmada.io/v1alpha2/namespaces/leaving/resourcebindings", new)
    plane.admin.delete("/api/v1/namespaces/leaving")

    def gone():
        try:
            plane.admin.get("/api/v1/namespaces/leaving")
        except ApiError as error:
            return error.status == 404
        return False

    wait_until(gone, "deletion of the namespace")
