"""Tests that contents of user objects are in no log line and no metric (TC3)."""

import copy
import json

import pytest
import structlog

from tests.controllers.hyperjob.objects import document, replicated
from tests.webhook.conftest import MUTATE
from tests.webhook.reviews import container, job_binding, review, review_of, task, volcano_job, volcano_queue, wire

SECRET = "s3cr3t-k3y"
ENV = [{"name": "TOKEN", "value": SECRET}]


def job(**spec):
    pod = {"containers": [container(env=ENV, args=[SECRET], command=[SECRET])], "restartPolicy": "Never"}
    new = volcano_job(task(template={"metadata": {"annotations": {"a": SECRET}}, "spec": pod}), **spec)
    new["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": SECRET}
    return new


def hyperjob(**changes):
    (part,) = [replicated("t")]
    part["templateSpec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"] = ENV
    new = document(part)
    new["metadata"]["annotations"] = {"a": SECRET}
    new["spec"] |= changes
    return new


def changed(new, old):
    return review_of(new, old=old, operation="UPDATE")


GROWN = job() | {"status": {"state": {"phase": "Running"}}}
MORE = copy.deepcopy(GROWN)
MORE["spec"]["tasks"][0]["replicas"] = 7
OTHER = copy.deepcopy(GROWN)
OTHER["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": f"{SECRET}-2"}]

CASES = [
    pytest.param(MUTATE, review(job_binding(note=SECRET, clusters=[{"name": "m"}])), id="binding"),
    pytest.param(MUTATE, review(job_binding(suspension=SECRET)), id="binding-that-cannot-be-read"),
    pytest.param(MUTATE, review(job_binding(), userInfo={"extra": {"t": [SECRET]}}, dryRun=SECRET), id="no-review"),
    pytest.param("/jobs/mutate", review_of(job(queue="")), id="job"),
    pytest.param("/jobs/validate", review_of(job(minAvailable=9)), id="job-refused"),
    pytest.param("/jobs/validate", review_of(job(minAvailable=SECRET)), id="job-that-cannot-be-read"),
    pytest.param("/jobs/validate", review_of(job(plugins={"env": SECRET})), id="job-with-a-plugin-that-cannot-be-read"),
    pytest.param("/jobs/validate", changed(MORE, GROWN), id="job-that-grows"),
    pytest.param("/jobs/validate", changed(OTHER, GROWN), id="job-changed"),
    pytest.param("/hyperjobs/mutate", review_of(hyperjob(plugins={"x": SECRET})), id="hyperjob"),
    pytest.param("/hyperjobs/validate", review_of(hyperjob(minAvailable=SECRET)), id="hyperjob-that-cannot-be-read"),
    pytest.param("/hyperjobs/validate", review_of(hyperjob(minAvailable=99)), id="hyperjob-refused"),
    pytest.param("/queues/validate", review_of(volcano_queue(weight=SECRET)), id="queue-that-cannot-be-read"),
    pytest.param(
        "/queues/validate", review_of(volcano_queue(annotations={"a": SECRET}, weight=-1)), id="queue-refused"
    ),
]


@pytest.mark.parametrize(("path", "review_body"), CASES)
async def test_secrets_of_objects_are_in_no_log_and_no_metric(running, path, review_body):
    with structlog.testing.capture_logs() as lines:
        running.app.log = structlog.get_logger().bind()
        async with running.post(wire(review_body), path) as answer:
            body = await answer.text()
    assert SECRET in json.dumps(review_body)
    assert SECRET not in json.dumps(lines)
    assert SECRET not in body
    assert SECRET.encode() not in running.app.metrics.render()


async def test_refusal_is_logged(running):
    with structlog.testing.capture_logs() as lines:
        running.app.log = structlog.get_logger().bind()
        async with running.post(wire(review_of(job(minAvailable=9))), "/jobs/validate") as answer:
            assert not (await answer.json())["response"]["allowed"]
    assert [line["event"] for line in lines] == ["object denied"]
