"""Tests which users may write bindings, on a real API server."""

import pytest

from localup.api import APPLY_PATCH, JSON_PATCH, ApiError
from localup.apply import wait_until
from tests.policies.conftest import COLLECTIONS, RECORD, TEAM, suspended_binding

MEMBERS = [{"name": "member1"}]
TASKS = [{"fromCluster": "member1", "reason": "x", "producer": "tenant"}]
FINALIZER = "karmada.io/binding-controller"
CLAIM = "propagationpolicy.karmada.io/permanent-id"


def write(api, it, how, body, subresource=""):
    """Write *body* to a stored binding: as a patch of one of three types, or in place of some fields of it."""
    path, whole = f"{it.path}{subresource}", {"apiVersion": it.object["apiVersion"], "kind": it.object["kind"]}
    match how:
        case "merge":
            api.merge(path, body)
        case "json":
            api.request("PATCH", path, [body], content_type=JSON_PATCH)
        case "apply":
            whole |= {"metadata": {"name": it.name}} | body
            api.request("PATCH", f"{path}?fieldManager=tenant&force=true", whole, content_type=APPLY_PATCH)
        case "put":
            changed = {name: {**it.object.get(name, {}), **fields} for name, fields in body.items()}
            api.request("PUT", path, it.object | changed)


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


RESUMED = {"spec": {"suspension": {"scheduling": False}}}
REPLACED = {"op": "replace", "path": "/spec/suspension/scheduling", "value": False}


@pytest.mark.parametrize(
    ("how", "body"),
    [
        pytest.param("merge", RESUMED, id="resume-by-merge"),
        pytest.param("merge", {"spec": {"suspension": {"scheduling": None}}}, id="resume-by-removing-the-field"),
        pytest.param("json", REPLACED, id="resume-by-json-patch"),
        pytest.param("apply", RESUMED, id="resume-by-apply"),
        pytest.param("put", {"spec": {"suspension": None}}, id="resume-by-put"),
        pytest.param("merge", {"spec": {"clusters": MEMBERS}}, id="clusters"),
        pytest.param("merge", {"spec": {"gracefulEvictionTasks": TASKS}}, id="eviction-tasks"),
        pytest.param("merge", {"spec": {"resource": {"name": "other"}}}, id="resource-of-another-name"),
        pytest.param("merge", {"spec": {"preserveResourcesOnDeletion": True}}, id="survive-eviction"),
        pytest.param("merge", annotated({RECORD: '{"charge":{}}'}), id="record-changed"),
        pytest.param("merge", annotated({RECORD: None}), id="record-removed"),
        pytest.param("merge", annotated(None), id="all-annotations-removed"),
        pytest.param("apply", annotated({RECORD: "x"}), id="record-by-apply"),
        pytest.param("merge", annotated({"volcano-global.io/other": "x"}), id="another-annotation-of-ours"),
        pytest.param("merge", annotated({"policy.karmada.io/applied-placement": "{}"}), id="annotation-of-karmada"),
        pytest.param("merge", labelled({CLAIM: None}), id="claim-removed"),
        pytest.param("merge", labelled({CLAIM: "other"}), id="claim-changed"),
        pytest.param("merge", labelled({f"cluster{CLAIM}": None}), id="cluster-claim-removed"),
        pytest.param("merge", labelled({"resourcebinding.karmada.io/permanent-id": "x"}), id="permanent-id-changed"),
        pytest.param("merge", {"metadata": {"finalizers": None}}, id="finalizers-removed"),
    ],
)
def test_tenant_cannot_change_a_binding(stored, tenant, how, body):
    check_denied(stored, tenant, how, body)


@pytest.mark.parametrize(
    ("how", "body"),
    [
        pytest.param("merge", {"status": {"aggregatedStatus": []}}, id="merge"),
        pytest.param("put", {"status": {"aggregatedStatus": []}}, id="put"),
        pytest.param("apply", {"status": {"schedulerObservedGeneration": 1}}, id="apply"),
        pytest.param("merge", annotated({RECORD: "x"}), id="record"),
    ],
)
def test_tenant_cannot_write_the_status_of_a_binding(stored, tenant, how, body):
    check_denied(stored, tenant, how, body, "/status")


def check_denied(stored, tenant, how, body, subresource=""):
    # If both policies deny, the error may name either.
    with pytest.raises(ApiError, match="ValidatingAdmissionPolicy 'volcano-global-binding") as refused:
        write(tenant, stored, how, body, subresource)
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


def old_version():
    """Return Karmada's version v1alpha1 of bindings, which has no suspension."""
    known = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {"type": "object", "properties": {"resource": known, "clusters": {"type": "array", "items": known}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": known}}}
    return {"name": "v1alpha1", "served": True, "storage": False, "schema": schema}


def is_served(api, path):
    try:
        return bool(api.get(path))
    except ApiError:
        return False


def test_tenant_cannot_write_a_binding_in_an_old_version(plane, stored, tenant, kind):
    """It has fewer fields, so the API server would store the binding without its suspension."""
    definition = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.lower()}s.work.karmada.io"
    versions = [*plane.admin.get(definition)["spec"]["versions"], old_version()]
    plane.admin.merge(definition, {"spec": {"versions": versions}})
    path = stored.path.replace("v1alpha2", "v1alpha1")
    wait_until(lambda: is_served(plane.admin, path), "the old version of bindings")
    with pytest.raises(ApiError, match="write bindings in version v1alpha2") as refused:
        tenant.merge(path, labelled({"team.example/cost-centre": "7"}))
    assert refused.value.status == 403
    assert stored.now() == stored.object


def owners(count, name="c"):
    common = {"apiVersion": "v1", "kind": "ConfigMap"}
    references = [{**common, "name": f"{name}{number}", "uid": f"u{number}"} for number in range(count)]
    return {"metadata": {"ownerReferences": references}}


def finalizers(count):
    return {"metadata": {"finalizers": [FINALIZER, *(f"team.example/{number}" for number in range(count - 1))]}}


def labels(count):
    return labelled({f"team.example/{number}": "x" for number in range(count)})


@pytest.mark.parametrize(
    ("allowed", "change", "message"),
    [
        pytest.param(labels(50), labels(65), "at most 64 labels", id="labels"),
        pytest.param(finalizers(20), finalizers(21), "at most 20 finalizers", id="finalizers"),
        pytest.param(owners(10), owners(11), "at most 10 owner references", id="owners"),
        pytest.param(owners(1), owners(1, name="c" * 4096), "at most 4,096 char", id="long-owner"),
        pytest.param(
            annotated({"note": "x" * 16_000}), annotated({"note": "x" * 16_400}), "at most 16,384 char", id="note"
        ),
        pytest.param(
            annotated({f"{number}": "x" for number in range(1000)}),
            annotated({f"team.example/{number}": "x" * 20 for number in range(1000)}),
            "at most 16,384 char",
            id="many-notes",
        ),
    ],
)
def test_tenant_cannot_fill_the_metadata_of_a_binding(stored, tenant, allowed, change, message):
    """The record of an eviction must fit."""
    tenant.merge(stored.path, allowed)
    with pytest.raises(ApiError, match=message):
        tenant.merge(stored.path, change)


def test_large_metadata_of_a_binding_can_be_reduced(stored, tenant, karmada):
    """A tenant may have written it before the policy existed."""
    karmada.merge(stored.path, labels(100))
    karmada.merge(stored.path, annotated({"note": "x" * 50_000}))
    tenant.merge(stored.path, labelled({"team.example/0": None}))
    tenant.merge(stored.path, annotated({"note": None}))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(annotated({"team.example/note": "mine", "checked": "yes"}), id="annotation"),
        pytest.param(labelled({"team.example/cost-centre": "7"}), id="label"),
        pytest.param({"metadata": {"finalizers": [FINALIZER, "team.example/hold"]}}, id="finalizer"),
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

    def refusal(api):
        with pytest.raises(ApiError) as refused:
            api.merge(path, {"spec": {"suspension": {"scheduling": False}}})
        return refused.value.message

    with plane.client("volcano-global-hyperjobs") as stage:
        # RBAC refuses until the API server has observed the role binding.
        wait_until(lambda: "only Karmada and volcano-global change the spec" in refusal(stage), "the policy's refusal")
    plane.admin.delete(f"{rights}/hyperjobs-edit")


def owned(plane, karmada):
    """Return the paths of a ConfigMap and of a binding that it owns."""
    owners = f"/api/v1/namespaces/{TEAM}/configmaps"
    owner = plane.admin.create(owners, {"metadata": {"generateName": "owner-"}})["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]}
    references = [reference | {"controller": True, "blockOwnerDeletion": True}]
    path = created(karmada)
    karmada.merge(path, {"metadata": {"ownerReferences": references}})
    return f"{owners}/{owner['name']}", path


def test_garbage_collector_can_delete_bindings(plane, karmada):
    """Owners are deleted in another order than they are created.

    The collector deletes a dependent that it has not observed yet, instead of orphaning it. When it has deleted those
    that were created later, it has observed the first one.
    """
    pairs = {propagation: owned(plane, karmada) for propagation in ("Orphan", "Background", "Foreground")}
    for propagation in ("Background", "Foreground", "Orphan"):
        owner, path = pairs[propagation]
        plane.admin.request("DELETE", owner, {"propagationPolicy": propagation})

        def settled(path=path, is_orphan=propagation == "Orphan"):
            try:
                left = plane.admin.get(path)
            except ApiError:
                return not is_orphan
            return is_orphan and "ownerReferences" not in left["metadata"]

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
