"""Tests Volcano's rules on a real API server: messages to users, stored objects, and outages."""

import pytest

from localup.api import ApiError
from localup.apply import wait_until
from tests.webhook.conftest import CONFIGURATION
from tests.webhook.installation import JOBS, QUEUES, register, send
from tests.webhook.reviews import task, volcano_job, volcano_queue, wire


@pytest.fixture(scope="module")
def tenant(plane):
    with plane.client("tenant") as api:
        yield api


@pytest.fixture
def configure(configuration, webhook):
    """Yield a function that changes the VolcanoGlobalConfiguration until the end of the test."""
    plain = configuration.read_text()

    def change(text):
        configuration.write_text(text)
        webhook.wait_for("configuration loaded")

    yield lambda members: change(f"{CONFIGURATION}, {members}}}")
    change(plain)


def refused(api, job):
    try:
        api.create(f"{JOBS}?dryRun=All", job)
    except ApiError as error:
        return error.message if "volcano-global.io" in error.message else ""
    return ""


def test_a_job_that_names_no_queue_goes_to_the_default_queue(tenant, configure):
    configure("defaultQueue: batch")
    unnamed = volcano_job(name="unnamed")
    del unnamed["spec"]["queue"]  # the CRD sets `default` before the webhook is called
    for job in (unnamed, volcano_job(queue=""), volcano_job(queue="default")):
        assert tenant.create(f"{JOBS}?dryRun=All", job)["spec"]["queue"] == "batch"
    unnamed["spec"]["plugins"] = {"pytorch": []}
    again = tenant.create(JOBS, unnamed)
    assert (again["spec"]["schedulerName"], again["spec"]["tasks"][0]["minAvailable"]) == ("volcano", 1)
    assert again["spec"]["plugins"] == {"pytorch": [], "svc": []}
    again["spec"]["minAvailable"] = 0
    del again["spec"]["queue"]
    assert tenant.request("PUT", f"{JOBS}/unnamed", again)["spec"]["queue"] == "batch"
    with pytest.raises(ApiError, match=r"may not change fields other than.*spec\.queue"):
        tenant.merge(f"{JOBS}/unnamed", {"spec": {"queue": "a"}})


@pytest.mark.smoke
@pytest.mark.usefixtures("webhook")
def test_user_sees_why_the_job_is_refused(tenant):
    message = refused(tenant, volcano_job(task(replicas=1, minAvailable=2)))
    assert "job ml/train: 'minAvailable' is greater than 'replicas' in task: worker, job: train" in message


@pytest.mark.usefixtures("webhook")
def test_missing_queue_is_a_warning_to_the_user(plane):
    job = wire(volcano_job(queue="nowhere", name="warned"))
    status, (warning,), _ = send(plane, "POST", JOBS, job, identity="tenant")
    assert status == 201
    assert "unable to find job queue: queue 'nowhere' does not exist" in warning
    assert warning.endswith('until then the job waits"')


def test_only_job_in_a_missing_queue_is_denied_when_configured(plane, tenant, configure):
    configure("queueValidation: Deny")
    assert "queue 'nowhere' does not exist" in refused(tenant, volcano_job(queue="nowhere"))
    for number in range(10):
        plane.admin.create(QUEUES, volcano_queue(f"fresh-{number}"))
        assert not refused(tenant, volcano_job(queue=f"fresh-{number}"))


@pytest.mark.usefixtures("webhook")
def test_parent_and_child_can_be_created_in_succession(plane):
    for number in range(10):
        plane.admin.create(QUEUES, volcano_queue(f"parent-{number}"))
        plane.admin.create(QUEUES, volcano_queue(f"child-{number}", parent=f"parent-{number}"))
        with pytest.raises(ApiError, match="has 1 child queues"):
            plane.admin.delete(f"{QUEUES}/parent-{number}")


@pytest.mark.usefixtures("webhook")
def test_invalid_queue_is_refused_by_the_api_server(plane):
    with pytest.raises(ApiError, match=r"parent queue 'missing' of queue 'q' does not exist"):
        plane.admin.create(QUEUES, volcano_queue(parent="missing"))
    plane.admin.create(QUEUES, volcano_queue("default"))
    with pytest.raises(ApiError, match=r"`default` queue can not be deleted"):
        plane.admin.delete(f"{QUEUES}/default")
    spec = plane.admin.create(QUEUES, volcano_queue("plain") | {"spec": {}})["spec"]
    assert (spec["weight"], spec["reclaimable"], spec["parent"]) == (1, True, "root")


def test_outage_refuses_only_new_jobs_and_changed_specs(plane, tenant, webhook):
    tenant.create(JOBS, volcano_job(name="outage"))
    plane.admin.create(QUEUES, volcano_queue("outage"))
    register(plane, 9)
    try:
        wait_until(lambda: "failed calling webhook" in refused(tenant, volcano_job()), "the outage")
        with pytest.raises(ApiError, match="failed calling webhook"):
            tenant.merge(f"{JOBS}/outage", {"spec": {"minAvailable": 0}})
        # Labels of Karmada, finalizers of the garbage collector and status of the members can still be written.
        tenant.merge(f"{JOBS}/outage", {"metadata": {"labels": {"a": "b"}, "finalizers": ["x.io/y"]}})
        tenant.merge(f"{JOBS}/outage", {"metadata": {"finalizers": None}})
        plane.admin.merge(f"{JOBS}/outage/status", {"status": {"state": {"phase": "Running"}}})
        tenant.delete(f"{JOBS}/outage")
        plane.admin.create(QUEUES, volcano_queue("during"))
        plane.admin.merge(f"{QUEUES}/during", {"spec": {"weight": 3}})
        plane.admin.delete(f"{QUEUES}/during")
        batch = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": "x"}]}}}
        tenant.create("/apis/batch/v1/namespaces/ml/jobs?dryRun=All", {"metadata": {"name": "x"}, "spec": batch})
    finally:
        register(plane, webhook.port)
        wait_until(lambda: "No task specified" in refused(tenant, volcano_job(tasks=[])), "the webhook's return")


def test_webhook_may_read_no_other_webhook_configuration(plane):
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    with plane.client("volcano-global-webhook") as api:
        assert api.get(f"{path}/volcano-global")["webhooks"]
        for forbidden in (path, f"{path}/another"):
            with pytest.raises(ApiError, match="forbidden"):
                api.get(forbidden)
