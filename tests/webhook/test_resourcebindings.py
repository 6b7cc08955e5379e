"""Tests reviews of new bindings."""

import json

import pytest

from controller.api.keys import POLICY_LABELS
from tests.webhook.reviews import UID, apply, binding, job_binding, review, wire
from webhook import review as wire_review
from webhook.bindings import VOLCANO_JOB, GatedKinds, GroupKind, review_binding
from webhook.review import AdmissionResponse, Outcome, review_response

GATED_KINDS = GatedKinds()


def answer_of(new, *, gated_kinds=GATED_KINDS, **request) -> AdmissionResponse:
    return review_binding(wire_review.read(wire(review(new, **request))), gated_kinds)


def stored(new, *, gated_kinds=GATED_KINDS, **request):
    """Return the binding as it would be stored, or ``None`` if it is denied."""
    answer = json.loads(wire_review.write(review_response(answer_of(new, gated_kinds=gated_kinds, **request), UID)))[
        "response"
    ]
    assert answer["uid"] == UID
    return apply(answer, new) if answer["allowed"] else None


MEMBERS = [{"name": "member1", "replicas": 2}]
ON_CLUSTERS = {"dispatchingOnClusters": {"clusterNames": ["member1"]}}


@pytest.mark.parametrize(
    ("suspension", "expected"),
    [
        pytest.param(None, {"scheduling": True}, id="null"),
        pytest.param({}, {"scheduling": True}, id="empty"),
        pytest.param({"scheduling": False}, {"scheduling": True}, id="resumed"),
        pytest.param({"scheduling": None}, {"scheduling": True}, id="null-scheduling"),
        pytest.param({"scheduling": True}, {"scheduling": True}, id="suspended-already"),
        pytest.param({"dispatching": True}, {"dispatching": True, "scheduling": True}, id="dispatching-suspended"),
        pytest.param(ON_CLUSTERS | {"scheduling": False}, ON_CLUSTERS | {"scheduling": True}, id="on-clusters"),
    ],
)
@pytest.mark.parametrize("clusters", [{}, {"clusters": None}, {"clusters": []}, {"clusters": MEMBERS}])
def test_volcano_job_is_suspended_without_clusters(suspension, expected, clusters):
    new = job_binding(suspension=suspension, **clusters)
    after = stored(new)
    assert after["spec"].pop("suspension") == expected
    assert not after["spec"].pop("clusters", None)
    rest = {key: value for key, value in new["spec"].items() if key not in {"suspension", "clusters"}}
    assert after == new | {"spec": rest}
    assert answer_of(stored(new)) == AdmissionResponse(Outcome.ALLOWED), "it is not patched again"


def test_binding_without_suspension_is_suspended():
    assert stored(job_binding())["spec"]["suspension"] == {"scheduling": True}


@pytest.mark.parametrize(
    ("required_by", "labels", "suspended"),
    [
        pytest.param([{"namespace": "ml", "name": "web-deployment"}], {}, False, id="a-dependency"),
        pytest.param([{"name": "web"}], {"resourcebinding.karmada.io/depended-by-1": "1"}, False, id="with-labels"),
        pytest.param([{"name": "web"}], {POLICY_LABELS[0]: "id"}, True, id="selected-by-a-policy-too"),
        pytest.param([{"name": "web"}], {POLICY_LABELS[1]: "id"}, True, id="selected-by-a-cluster-policy-too"),
        pytest.param([], {}, True, id="empty"),
        pytest.param(None, {}, True, id="null"),
    ],
)
def test_attached_binding_is_not_suspended(required_by, labels, suspended):
    new = job_binding(requiredBy=required_by)
    new["metadata"]["labels"] = labels
    assert (answer_of(new).outcome is Outcome.PATCHED) is suspended


@pytest.mark.parametrize(
    ("api_version", "kind", "outcome"),
    [
        ("batch.volcano.sh/v1", "Job", Outcome.PATCHED),
        ("batch.volcano.sh/v2beta3", "Job", Outcome.PATCHED),
        ("apps/v1", "Deployment", Outcome.ALLOWED),
        ("batch/v1", "Job", Outcome.ALLOWED),
        ("v1", "Job", Outcome.ALLOWED),
        ("batch.volcano.sh/v1alpha1", "CronJob", Outcome.ALLOWED),
        ("scheduling.volcano.sh/v1beta1", "Job", Outcome.ALLOWED),
        ("batch.volcano.sh", "Job", Outcome.ALLOWED),
    ],
)
def test_volcano_jobs_are_gated_in_any_version(api_version, kind, outcome):
    assert answer_of(binding(api_version, kind, clusters=MEMBERS)).outcome is outcome


def test_configured_kinds_are_gated():
    gated_kinds = GatedKinds(frozenset({VOLCANO_JOB, GroupKind("apps", "Deployment"), GroupKind("", "Pod")}))
    assert answer_of(binding("apps/v1", "Deployment"), gated_kinds=gated_kinds).outcome is Outcome.PATCHED
    assert answer_of(binding("v1", "Pod"), gated_kinds=gated_kinds).outcome is Outcome.PATCHED
    assert answer_of(binding("batch/v1", "Job"), gated_kinds=gated_kinds).outcome is Outcome.ALLOWED


def test_exempt_namespace_has_its_own_outcome():
    gated_kinds = GatedKinds(exempt_namespaces=frozenset({"ml"}))
    assert answer_of(job_binding(), gated_kinds=gated_kinds).outcome is Outcome.EXEMPT
    assert answer_of(job_binding(), gated_kinds=gated_kinds, namespace="other").outcome is Outcome.PATCHED
    assert answer_of(binding("apps/v1", "Deployment"), gated_kinds=gated_kinds).outcome is Outcome.ALLOWED


def test_cluster_resource_binding_is_suspended_too():
    resource = {"group": "work.karmada.io", "version": "v1alpha2", "resource": "clusterresourcebindings"}
    after = stored(job_binding(clusters=MEMBERS), resource=resource, namespace="")
    assert after["spec"]["suspension"] == {"scheduling": True}
    assert "clusters" not in after["spec"]


def test_dry_run_gets_the_same_answer():
    assert answer_of(job_binding(), dryRun=True) == answer_of(job_binding())


def test_restored_binding_is_suspended_with_its_record():
    restored = job_binding(suspension={"scheduling": False}, clusters=MEMBERS)
    restored["metadata"]["annotations"] = {"volcano-global.io/admission": '{"uid":"of-before"}'}
    after = stored(restored)
    assert after["spec"]["suspension"] == {"scheduling": True}
    assert after["metadata"] == restored["metadata"]


def test_binding_with_a_generated_name_is_suspended():
    request = review(job_binding())
    del request["request"]["name"]
    assert review_binding(wire_review.read(wire(request)), GATED_KINDS).outcome is Outcome.PATCHED


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        pytest.param({"operation": "UPDATE"}, "UPDATE", id="update"),
        pytest.param({"operation": "create"}, "create", id="lower-case"),
        pytest.param(
            {"resource": {"group": "work.karmada.io", "version": "v1alpha1", "resource": "works"}}, "works", id="works"
        ),
        pytest.param({"subResource": "status"}, "status", id="subresource"),
    ],
)
def test_review_of_another_target_is_refused_by_name(request_, names):
    response = answer_of(job_binding(), **request_)
    assert response.outcome is Outcome.DENIED
    assert names in response.message
    assert "correct the rules" in response.message


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(None, id="null"),
        pytest.param([], id="list"),
        pytest.param("x", id="string"),
        pytest.param({}, id="empty"),
        pytest.param({"spec": None}, id="null-spec"),
        pytest.param({"spec": {}}, id="no-resource"),
        pytest.param({"spec": {"resource": {"kind": "Job"}}}, id="no-api-version"),
        pytest.param({"spec": {"resource": {"apiVersion": "v1"}}}, id="no-kind"),
        pytest.param({"spec": {"resource": {"apiVersion": "v1", "kind": ["Job"]}}}, id="kind-list"),
        pytest.param(job_binding(suspension="yes"), id="suspension-string"),
        pytest.param(job_binding(suspension={"scheduling": "true"}), id="scheduling-string"),
        pytest.param(job_binding(clusters={}), id="clusters-object"),
    ],
)
def test_invalid_binding_is_denied_with_a_message(new):
    response = answer_of(new)
    assert response.outcome is Outcome.DENIED
    assert response.message.startswith("binding 'train-job' cannot be decoded: ")


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(b'"suspension":{"scheduling":true},"suspension":{"scheduling":false}', id="spec"),
        pytest.param(b'"suspension":{"scheduling":true,"scheduling":false}', id="suspension"),
        pytest.param(b'"x":{}, "suspension":{"scheduling":true},"suspension":null', id="with-blanks"),
    ],
)
def test_binding_with_a_repeated_key_is_denied(written):
    body = wire(review(job_binding(suspension=None))).replace(b'"suspension":null', written)
    response = review_binding(wire_review.read(body), GATED_KINDS)
    assert response.outcome is Outcome.DENIED
    assert "is repeated" in response.message
