import json

import pytest

from controller.api.configuration import Tenant
from controller.api.meta import ObjectMeta
from tests.controllers.hyperjob.objects import document, replicated, task
from tests.files import EXAMPLES, read_object
from tests.webhook.reviews import apply, review_of, wire
from webhook import review as wire_review
from webhook.queue_cache import QueueCache, ReviewedQueue, ReviewedQueueStatus, to_cached
from webhook.review import Outcome, review_response
from webhook.validation.hyperjob import mutate_hyperjob, validate_hyperjob
from webhook.validation.job import JobPolicy

POLICY = JobPolicy(default_queue="common")


def queue_cache(*names):
    cache = QueueCache()
    cache.replace([to_cached(ReviewedQueue(ObjectMeta(name), status=ReviewedQueueStatus("Open"))) for name in names])
    return cache


def make_request(new, operation="CREATE", **request):
    return wire_review.read(
        wire(review_of(new, operation=operation, old=new if operation == "UPDATE" else None, **request))
    )


def validate(new, *, policy=POLICY, queues=None, **request):
    return validate_hyperjob(make_request(new, **request), policy, queues or queue_cache("ml", "common"))


def documented():
    return read_object(EXAMPLES / "hyperjob-conceptual.yaml")


def mutated(new):
    response = mutate_hyperjob(make_request(new), POLICY)
    return apply(json.loads(wire_review.write(review_response(response, "u")))["response"], new)


@pytest.mark.parametrize(
    ("named", "stored"), [(None, "common"), ("default", "common"), ("ml", "ml")], ids=["none", "default", "named"]
)
def test_template_without_queue_gets_the_default_queue(named, stored):
    jobs, documents = [replicated("x"), replicated("y")], documented()
    for spec in (jobs[0]["templateSpec"], documents["spec"]["template"]["spec"]):
        spec.pop("queue")
        spec.update({"queue": named} if named else {})
    found = mutated(document(*jobs))["spec"]["replicatedJobs"]
    assert [job["templateSpec"]["queue"] for job in found] == [stored, "ml"]
    assert mutated(documents)["spec"]["template"]["spec"]["queue"] == stored


def test_documented_manifest_is_allowed():
    assert validate(documented(), queues=queue_cache("global-ai")).outcome is Outcome.ALLOWED
    assert mutated(documented()) == documented()


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_hyperjob_that_cannot_be_split_is_refused(operation):
    response = validate(document(replicated("t", splitPolicy={"strategy": "ByReplicas"})), operation=operation)
    assert (response.outcome, response.code) == (Outcome.DENIED, 422)
    assert response.message == (
        "hyperjob ml/llm: replicated job 't': a split ByReplicas needs splitPolicy.parts, or splitPolicy.clusters with"
        " their weights"
    )


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(
            document(replicated("t", task("a"), task("a"))), "job 't': duplicated task name a", id="volcano-rule"
        ),
        pytest.param(document(minAvailable="two"), "spec.minAvailable: input should be a valid integer", id="field"),
    ],
)
def test_invalid_template_or_field_is_named(new, expected):
    assert expected in validate(new).message


def test_missing_queue_is_a_warning_or_a_denial():
    response = validate(document(), queues=queue_cache("other"))
    assert response.outcome is Outcome.WARNED
    assert response.warnings[0].endswith("until then the HyperJob waits")
    strict = validate(document(), queues=queue_cache("other"), policy=JobPolicy(denies_unusable_queues=True))
    assert (strict.outcome, strict.depends_on_queues) == (Outcome.DENIED, True)


def test_exempt_namespace_is_not_validated():
    policy = JobPolicy(exempt_namespaces=frozenset({"ml"}))
    assert validate(document(replicatedJobs=[]), policy=policy).outcome is Outcome.EXEMPT


def test_reviews_of_other_resources_are_refused():
    assert validate(document(), resource={"group": "apps", "version": "v1", "resource": "deployments"}).code == 400


def test_tenant_priority_classes_apply_to_template_pods():
    tenant = Tenant(namespaces=("ml",), priority_classes=("normal",))
    high = task("a")
    high["template"]["spec"]["priorityClassName"] = "high"
    policy = JobPolicy(default_queue="common", denies_unusable_queues=True, tenants=(tenant,))
    response = validate(document(replicated("t", high)), policy=policy)
    assert "namespace 'ml' may not use PriorityClass 'high'" in response.message
