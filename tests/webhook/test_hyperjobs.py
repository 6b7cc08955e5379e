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


def without_queue(*names):
    jobs = [replicated(name) for name in names]
    for job in jobs:
        del job["templateSpec"]["queue"]
    return jobs


def test_template_without_queue_gets_the_default_queue():
    jobs = mutated(document(*without_queue("x", "y"), replicated("z")))["spec"]["replicatedJobs"]
    assert [job["templateSpec"]["queue"] for job in jobs] == ["common", "common", "ml"]


def test_queue_default_means_the_operators_default_queue():
    (job,) = without_queue("x")
    job["templateSpec"]["queue"] = "default"
    assert mutated(document(job))["spec"]["replicatedJobs"][0]["templateSpec"]["queue"] == "common"


def test_batch_hyperjob_gets_the_default_queue():
    hyperjob = documented()
    del hyperjob["spec"]["template"]["spec"]["queue"]
    assert mutated(hyperjob)["spec"]["template"]["spec"]["queue"] == "common"


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


def test_template_is_validated_like_a_volcano_job():
    response = validate(document(replicated("t", task("a"), task("a"))))
    assert "replicated job 't': duplicated task name a" in response.message


def test_undecodable_field_is_named():
    assert "spec.minAvailable: input should be a valid integer" in validate(document(minAvailable="two")).message


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
