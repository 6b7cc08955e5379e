"""The installer's commands on a real control plane: only ours comes, only ours goes, and what is missing is named."""

import base64
import time
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import pytest
import yaml

from install.credentials import expiry, is_due, server_of
from localup.api import Api, ApiError
from tests.install.conftest import HOST

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/volcano-global"
VALIDATING = MUTATING.replace("mutating", "validating")
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
BINDINGS = "/apis/work.karmada.io/v1alpha2/namespaces/left/resourcebindings"
OURS = "app.kubernetes.io/managed-by"


def exists(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return False
    return True


@pytest.fixture(autouse=True)
def clean(plane, command):
    """Uninstall after each test."""
    yield
    result = command("remove")
    assert result.code == 0, result


def test_check_passes_with_karmada_and_volcano(command):
    assert command("check").logged("prerequisites satisfied")


@pytest.mark.parametrize("name", ["check", "apply"])
def test_install_warns_about_unauthenticated_callers(command, name):
    (warning,) = command(name).logged("webhook callers not authenticated", level="warning")
    assert "webhook.clientCa.secretName" in warning["remedy"]
    assert "networkPolicy.karmadaApiserver" in warning["remedy"]
    assert not command(name, "--authenticated-callers").logged("webhook callers not authenticated")


def test_check_names_missing_prerequisites(plane, command):
    removed = plane.admin.get(f"{CRDS}/queues.scheduling.volcano.sh")
    plane.admin.delete(f"{CRDS}/queues.scheduling.volcano.sh")
    try:
        _wait_until(lambda: "queues" in str(command("check").code))
        message = str(command("check").code)
        assert "queues.scheduling.volcano.sh/v1beta1 are not served" in message
        assert "apply Volcano's CustomResourceDefinitions" in message
        assert "jobs.batch" not in message
        assert command("apply").code == message, "nothing is applied while a prerequisite is missing"
        assert not exists(plane.admin, f"{ROLES}/volcano-global-controller")
    finally:
        metadata = {key: removed["metadata"][key] for key in ("name", "annotations") if key in removed["metadata"]}
        plane.admin.create(CRDS, {**removed, "metadata": metadata, "status": {}})
        _wait_until(lambda: command("check").code == 0)


def test_check_rejects_an_invalid_configuration(command, monkeypatch):
    monkeypatch.setenv("ADMISSION_CONFIGURATION", "apiVersion: config.volcano-global.io/v1alpha1\nqueueOrdr: x")
    assert "did you mean 'queueOrder'?" in str(command("check").code)


def test_applied_objects_are_labelled(plane, command):
    assert command("apply").code == 0
    for path in (f"{CRDS}/hyperjobs.training.volcano.sh", f"{ROLES}/volcano-global-webhook", f"{QUEUES}/default"):
        assert plane.admin.get(path)["metadata"]["labels"][OURS] == "volcano-global", path


def test_second_apply_changes_nothing(plane, command):
    command("apply")
    before = plane.admin.get(f"{ROLES}/volcano-global-controller")["metadata"]["resourceVersion"]
    assert command("apply").code == 0
    assert plane.admin.get(f"{ROLES}/volcano-global-controller")["metadata"]["resourceVersion"] == before


def test_foreign_definition_is_not_changed(plane, command, objects):
    definition = yaml.safe_load((objects / "training.volcano.sh_hyperjobs.yaml").read_text())
    definition["metadata"]["labels"] = {"from": "upstream"}
    # The API server deletes the definition of an earlier test asynchronously.
    _wait_until(lambda: not exists(plane.admin, f"{CRDS}/hyperjobs.training.volcano.sh"))
    plane.admin.create(CRDS, definition)
    try:
        result = command("apply")
        name = "CustomResourceDefinition hyperjobs.training.volcano.sh"
        assert result.logged("object not overwritten", object=name)
        assert plane.admin.get(f"{CRDS}/hyperjobs.training.volcano.sh")["metadata"]["labels"] == {"from": "upstream"}
        command("remove")
        assert exists(plane.admin, f"{CRDS}/hyperjobs.training.volcano.sh")
    finally:
        plane.admin.delete(f"{CRDS}/hyperjobs.training.volcano.sh")
        _wait_until(lambda: not exists(plane.admin, f"{CRDS}/hyperjobs.training.volcano.sh"))


def test_edited_default_queue_is_not_changed(plane, command):
    command("apply")
    plane.admin.merge(f"{QUEUES}/default", {"spec": {"weight": 7}})
    command("apply")
    assert plane.admin.get(f"{QUEUES}/default")["spec"]["weight"] == 7


def test_obsolete_objects_are_pruned(plane, command, objects):
    command("apply")
    assert exists(plane.admin, f"{ROLES}/volcano-global-hyperjobs")
    (objects / "hyperjobs.yaml").unlink()
    result = command("apply")
    assert result.logged("object deleted", object="ClusterRole volcano-global-hyperjobs")
    assert not exists(plane.admin, f"{ROLES}/volcano-global-hyperjobs")


def test_definition_in_use_is_not_removed(plane, command):
    command("apply")
    path = "/apis/training.volcano.sh/v1alpha1/namespaces/left/hyperjobs"
    spec = {"replicatedJobs": [{"name": "a", "templateSpec": {"tasks": [{"name": "t", "replicas": 1}]}}]}
    manifest = {
        "apiVersion": "training.volcano.sh/v1alpha1",
        "kind": "HyperJob",
        "metadata": {"name": "h"},
        "spec": spec,
    }
    plane.admin.create(path, manifest)
    result = command("remove")
    assert result.logged("object not deleted", object="CustomResourceDefinition hyperjobs.training.volcano.sh")
    assert exists(plane.admin, f"{path}/h")
    plane.admin.delete(f"{path}/h")


def test_credentials_are_renewed_when_due(plane, command):
    plane.admin.create(f"/api/v1/namespaces/{HOST}/secrets", {"metadata": {"name": "webhook-kubeconfig"}})
    flags = ["--host-kubeconfig", plane.kubeconfig("admin"), "--host-namespace", HOST]
    flags += ["--account", "volcano-global-webhook=webhook-kubeconfig", "--token-days", "1"]
    assert command("apply", *flags).logged("credentials issued", account="volcano-global-webhook")
    text = _secret(plane)
    token = yaml.safe_load(text)["users"][0]["user"]["token"]
    with Api(plane.url, ca=plane.ca, token=token) as client:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        review_result = client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    assert (
        review_result["status"]["userInfo"]["username"] == "system:serviceaccount:karmada-system:volcano-global-webhook"
    )

    assert not command("credentials", *flags).logged("credentials issued"), "it is not due"
    assert command("credentials", *flags, "--renew").logged("credentials issued")
    assert _secret(plane) != text
    now = datetime.now(UTC)
    assert not is_due(text, server_of(text), now)
    assert is_due(text, server_of(text), now + timedelta(hours=17))
    assert is_due(text, {"server": "https://elsewhere"}, now)
    assert now + timedelta(hours=23) < expiry(token) < now + timedelta(hours=25)
    plane.admin.delete(f"/api/v1/namespaces/{HOST}/secrets/webhook-kubeconfig")


def test_tc3_no_token_is_logged(plane, command):
    plane.admin.create(f"/api/v1/namespaces/{HOST}/secrets", {"metadata": {"name": "webhook-kubeconfig"}})
    flags = ["--host-kubeconfig", plane.kubeconfig("admin"), "--host-namespace", HOST]
    result = command("apply", *flags, "--account", "volcano-global-webhook=webhook-kubeconfig")
    token = yaml.safe_load(_secret(plane))["users"][0]["user"]["token"]
    assert token not in str(result)
    assert plane.token("admin") not in str(result)
    plane.admin.delete(f"/api/v1/namespaces/{HOST}/secrets/webhook-kubeconfig")


def test_unreachable_webhook_is_not_registered(plane, command):
    bundle = base64.b64encode(plane.ca.encode()).decode()
    path = f"/api/v1/namespaces/{HOST}/secrets"
    plane.admin.create(path, {"metadata": {"name": "tls"}, "data": {"ca.crt": bundle}})
    flags = ["--host-kubeconfig", plane.kubeconfig("admin"), "--host-namespace", HOST, "--certificate-secret", "tls"]
    result = command("register", *flags, "--webhook-address", "127.0.0.1:1", "--wait-seconds", "1")
    assert "was not reachable within 1 s" in str(result.code)
    assert not exists(plane.admin, MUTATING)

    # The API server itself serves a certificate of that CA.
    port = plane.url.rpartition(":")[2]
    assert command("register", *flags, "--webhook-address", f"127.0.0.1:{port}").code == 0
    for registered in (MUTATING, VALIDATING):
        webhooks = plane.admin.get(registered)["webhooks"]
        assert {webhook["clientConfig"]["caBundle"] for webhook in webhooks} == {bundle}
    plane.admin.delete(f"{path}/tls")


def test_second_register_preserves_the_bundle(plane, command):
    path = f"/api/v1/namespaces/{HOST}/secrets"
    old, new = (base64.b64encode(text).decode() for text in (plane.ca.encode(), plane.ca.encode() * 2))
    flags = ["--host-kubeconfig", plane.kubeconfig("admin"), "--host-namespace", HOST, "--certificate-secret", "tls"]
    plane.admin.create(path, {"metadata": {"name": "tls"}, "data": {"ca.crt": old}})
    command("register", *flags)
    plane.admin.merge(f"{path}/tls", {"data": {"ca.crt": new}})
    renamed = plane.admin.get(MUTATING)["webhooks"][0] | {"name": "gone.volcano-global.io"}
    patch = [{"op": "add", "path": "/webhooks/-", "value": renamed}]
    plane.admin.request("PATCH", MUTATING, patch, content_type="application/json-patch+json")
    assert command("register", *flags).code == 0
    webhooks = plane.admin.get(MUTATING)["webhooks"]
    assert "gone.volcano-global.io" not in {webhook["name"] for webhook in webhooks}
    assert {webhook["clientConfig"]["caBundle"] for webhook in webhooks} == {old}, "certs publishes the new bundle"
    plane.admin.delete(f"{path}/tls")


@pytest.mark.parametrize(("flags", "stays_suspended"), [((), True), (("--resume",), False)], ids=["listed", "resumed"])
def test_remove_lists_and_resumes_suspended_bindings(plane, command, flags, stays_suspended):
    command("apply")
    resource = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "u"}
    spec = {"resource": resource, "suspension": {"scheduling": True, "dispatching": True}}
    manifest = {"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": {"name": "j-job"}}
    plane.admin.create(BINDINGS, {**manifest, "spec": spec})
    result = command("remove", *flags)
    (line,) = result.logged("suspended binding found", binding="left/j-job")
    assert line["outcome"] == ("stays suspended" if stays_suspended else "resumed")
    assert bool(result.logged("bindings stay suspended", count=1)) is stays_suspended
    suspension = plane.admin.get(f"{BINDINGS}/j-job")["spec"]["suspension"]
    assert suspension == {"scheduling": stays_suspended, "dispatching": True}
    plane.admin.delete(f"{BINDINGS}/j-job")


DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment"}
VOLCANO_JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
RECORD = {"volcano-global.io/admission": "{}"}


@pytest.mark.parametrize(
    ("template", "annotations", "configured"),
    [
        pytest.param(DEPLOYMENT, {}, "", id="other-kind"),
        pytest.param({"apiVersion": "batch/v1", "kind": "Job"}, {}, "", id="job-of-another-group"),
        pytest.param(VOLCANO_JOB, {}, "exemptNamespaces: [left]", id="exempt-namespace"),
    ],
)
def test_bindings_suspended_by_others_stay_suspended(suspended, template, annotations, configured):
    assert not suspended(template, annotations, configured)


@pytest.mark.parametrize(
    ("template", "annotations", "configured"),
    [
        pytest.param(DEPLOYMENT, RECORD, "", id="with-our-record"),
        pytest.param(DEPLOYMENT, {}, "integrations: [{apiVersion: apps/v1, kind: Deployment}]", id="gated-kind"),
        pytest.param(VOLCANO_JOB, {}, "exemptNamespaces: 1", id="unreadable-configuration"),
    ],
)
def test_bindings_suspended_by_us_are_resumed(suspended, template, annotations, configured):
    assert suspended(template, annotations, configured)


@pytest.fixture
def suspended(plane, command, monkeypatch):
    """Return a function that uninstalls with a suspended binding and returns whether the binding was resumed."""

    def uninstall(template, annotations, configured):
        head = "apiVersion: config.volcano-global.io/v1alpha1\nkind: VolcanoGlobalConfiguration"
        monkeypatch.setenv("ADMISSION_CONFIGURATION", f"{head}\n{configured}")
        manifest = {
            "apiVersion": "work.karmada.io/v1alpha2",
            "kind": "ResourceBinding",
            "metadata": {"name": "x-binding", "annotations": annotations},
            "spec": {"resource": {**template, "name": "x", "uid": "u"}, "suspension": {"scheduling": True}},
        }
        plane.admin.create(BINDINGS, manifest)
        listed = command("remove", "--resume").logged("suspended binding found", binding="left/x-binding")
        resumed = not plane.admin.get(f"{BINDINGS}/x-binding")["spec"]["suspension"]["scheduling"]
        plane.admin.delete(f"{BINDINGS}/x-binding")
        assert bool(listed) is resumed
        return resumed

    return uninstall


def _secret(plane) -> str:
    secret = plane.admin.get(f"/api/v1/namespaces/{HOST}/secrets/webhook-kubeconfig")
    return base64.b64decode(secret["data"]["kubeconfig"]).decode()


def _wait_until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
