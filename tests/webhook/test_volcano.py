"""Tests Volcano's rules on a real API server: messages to users, stored objects, and outages."""

import json
from collections.abc import Iterator

import pytest

from localup.api import JSON_PATCH, ApiError
from localup.apply import wait_until
from tests.webhook.conftest import ensure_certificates
from tests.webhook.installation import JOBS, QUEUES, ensure, register, send
from tests.webhook.process import WebhookProcess
from tests.webhook.reviews import task, volcano_job, volcano_queue, wire

CONFIGURATION = "{apiVersion: config.volcano-global.io/v1alpha1, kind: VolcanoGlobalConfiguration"


@pytest.fixture(scope="module")
def tenant(plane):
    with plane.client("tenant") as api:
        yield api


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    ensure_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def configuration(tmp_path_factory):
    file = tmp_path_factory.mktemp("configuration") / "admission.yaml"
    file.write_text(CONFIGURATION + "}")
    return file


@pytest.fixture(scope="module")
def webhook(plane, tenant, folder, configuration) -> Iterator[WebhookProcess]:
    flags = ("--drain-seconds", "0", "--poll-seconds", "0.2", "--admission-configuration", str(configuration))
    kubeconfig = str(plane.kubeconfig("volcano-global-webhook"))
    with WebhookProcess(folder / "serving", *flags, "--kubeconfig", kubeconfig) as running:
        register(plane, running.port)
        ensure(plane, folder)
        running.wait_for("webhook ready")
        wait_until(lambda: refused(tenant, volcano_job(tasks=[])), "webhook at work")
        yield running


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


def warned(plane, job, *, method="POST", path=JOBS, **options):
    status, warnings, body = send(plane, method, path, wire(job), identity="tenant", **options)
    assert status < 300, body
    return [warning.partition(" - ")[2].strip('"') for warning in warnings]


@pytest.mark.usefixtures("webhook")
def test_stored_job_has_volcano_defaults(tenant):
    job = volcano_job(task(replicas=3), name="defaults", queue="", plugins={"pytorch": []})
    found = tenant.create(JOBS, job)["spec"]
    assert (found["queue"], found["schedulerName"], found["minAvailable"]) == ("default", "volcano", 3)
    assert found["tasks"][0]["minAvailable"] == 3
    assert found["plugins"] == {"pytorch": [], "svc": []}


def test_a_job_that_names_no_queue_goes_to_the_default_queue(tenant, configure):
    configure("defaultQueue: batch")
    unnamed = volcano_job(name="unnamed")
    del unnamed["spec"]["queue"]  # the CRD sets `default` before the webhook is called
    for job in (unnamed, volcano_job(queue=""), volcano_job(queue="default")):
        assert tenant.create(f"{JOBS}?dryRun=All", job)["spec"]["queue"] == "batch"
    tenant.create(JOBS, unnamed)
    again = tenant.get(f"{JOBS}/unnamed")
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
    (warning,) = warned(plane, volcano_job(queue="nowhere", name="warned"))
    assert warning.startswith("unable to find job queue: queue 'nowhere' does not exist")
    assert warning.endswith("until then the job waits")


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
    found = plane.admin.create(QUEUES, volcano_queue("plain") | {"spec": {}})["spec"]
    assert (found["weight"], found["reclaimable"]) == (1, True)


@pytest.mark.usefixtures("webhook")
def test_resize_of_a_running_job_is_a_warning(plane, tenant):
    plane.admin.create(QUEUES, volcano_queue("growing"))
    tenant.create(JOBS, volcano_job(task(replicas=2), name="growing", queue="growing"))
    plane.admin.merge(f"{JOBS}/growing/status", {"status": {"state": {"phase": "Running"}}})
    body = [{"op": "replace", "path": "/spec/tasks/0/replicas", "value": 9}]
    (warning,) = warned(plane, body, method="PATCH", path=f"{JOBS}/growing", content_type=JSON_PATCH)
    assert "(worker 2 -> 9)" in warning
    assert "is evicted after 5m and queues again" in warning


@pytest.mark.usefixtures("webhook")
def test_dry_run_is_validated_alike(tenant):
    assert refused(tenant, volcano_job(tasks=[]))
    assert tenant.create(f"{JOBS}?dryRun=All", volcano_job(name="dry"))["spec"]["schedulerName"] == "volcano"


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


def test_granted_permissions_of_the_webhook_are_used(plane):
    """All tests of this module run with these permissions: list and watch queues, get its own configurations."""
    role = plane.admin.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/volcano-global-webhook")
    granted = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    own = {("mutatingwebhookconfigurations", "get"), ("validatingwebhookconfigurations", "get")}
    assert granted == {("queues", "list"), ("queues", "watch")} | own
    named = [rule["resourceNames"] for rule in role["rules"] if "admissionregistration.k8s.io" in rule["apiGroups"]]
    assert json.dumps(named) == '[["volcano-global"]]'
