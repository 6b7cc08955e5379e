"""Tests reviews of new bindings."""

import pytest

from controller.api.keys import POLICY_LABELS
from tests.webhook.reviews import binding, job_binding, review, stored_after, wire
from webhook import review as wire_review
from webhook.bindings import GatedKinds, review_binding
from webhook.review import AdmissionResponse, Outcome

GATED_KINDS = GatedKinds()


def answer_of(new, **request) -> AdmissionResponse:
    return review_binding(wire_review.read(wire(review(new, **request))), GATED_KINDS)


def stored(new, **request):
    """Return the binding as it is stored."""
    return stored_after(answer_of(new, **request), new)


MEMBERS = [{"name": "member1", "replicas": 2}]
ON_CLUSTERS = {"dispatchingOnClusters": {"clusterNames": ["member1"]}}


@pytest.mark.parametrize(
    ("suspension", "more"),
    [
        pytest.param({}, {}, id="absent"),
        pytest.param({"suspension": None}, {}, id="null"),
        pytest.param({"suspension": {}}, {}, id="empty"),
        pytest.param({"suspension": {"scheduling": False}}, {}, id="resumed"),
        pytest.param({"suspension": {"scheduling": None}}, {}, id="null-scheduling"),
        pytest.param({"suspension": {"scheduling": True}}, {}, id="suspended-already"),
        pytest.param({"suspension": {"dispatching": True}}, {"dispatching": True}, id="dispatching-suspended"),
        pytest.param({"suspension": ON_CLUSTERS | {"scheduling": False}}, ON_CLUSTERS, id="on-clusters"),
    ],
)
@pytest.mark.parametrize("clusters", [{}, {"clusters": None}, {"clusters": []}, {"clusters": MEMBERS}])
def test_volcano_job_is_suspended_without_clusters(suspension, more, clusters):
    new = job_binding(**suspension, **clusters)
    # As a restored backup has it.
    new["metadata"]["annotations"] = {"volcano-global.io/admission": '{"uid":"of-before"}'}
    after = stored(new)
    assert after["spec"].pop("suspension") == {"scheduling": True} | more
    assert not after["spec"].pop("clusters", None)
    rest = {key: value for key, value in new["spec"].items() if key not in {"suspension", "clusters"}}
    assert after == new | {"spec": rest}
    assert answer_of(stored(new)) == AdmissionResponse(Outcome.ALLOWED), "it is not patched again"


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


def test_cluster_resource_binding_is_suspended_too():
    resource = {"group": "work.karmada.io", "version": "v1alpha2", "resource": "clusterresourcebindings"}
    after = stored(job_binding(clusters=MEMBERS), resource=resource, namespace="")
    assert after["spec"]["suspension"] == {"scheduling": True}
    assert "clusters" not in after["spec"]


def test_dry_run_gets_the_same_answer():
    assert answer_of(job_binding(), dryRun=True) == answer_of(job_binding())


def test_binding_with_a_generated_name_is_suspended():
    request = review(job_binding())
    del request["request"]["name"]
    assert review_binding(wire_review.read(wire(request)), GATED_KINDS).outcome is Outcome.PATCHED


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
