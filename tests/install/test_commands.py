"""The installer's commands on a real control plane: only ours comes, only ours goes, and what is missing is named."""

import base64
import json
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import pytest
import yaml

from install.credentials import expiry, is_due, server_of
from localup.api import JSON_PATCH, Api, ApiError
from localup.apply import wait_until
from tests.install.conftest import HOST

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/volcano-global"
VALIDATING = MUTATING.replace("mutating", "validating")
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
BINDINGS = "/apis/work.karmada.io/v1alpha2/namespaces/left/resourcebindings"
SECRETS = f"/api/v1/namespaces/{HOST}/secrets"
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
    assert result.returncode == 0, result


@pytest.mark.parametrize("name", ["check", "apply"])
def test_install_warns_about_unauthenticated_callers(command, name):
    result = command(name)
    assert result.returncode == 0
    assert name != "check" or result.logged("prerequisites satisfied")
    (warning,) = result.logged("webhook callers not authenticated", level="warning")
    assert "webhook.clientCa.secretName" in warning["remedy"]
    assert "networkPolicy.karmadaApiserver" in warning["remedy"]
    assert not command(name, "--authenticated-callers").logged("webhook callers not authenticated")


@pytest.mark.parametrize(
    ("plural", "group", "version", "remedy"),
    [
        ("queues", "scheduling.volcano.sh", "v1beta1", "apply Volcano's CustomResourceDefinitions"),
        ("clustertaintpolicies", "policy.karmada.io", "v1alpha1", "upgrade Karmada to 1.14 or newer"),
    ],
    ids=["no-volcano", "old-karmada"],
)
def test_check_names_missing_prerequisites(plane, command, *, plural, group, version, remedy):
    removed = plane.admin.get(f"{CRDS}/{plural}.{group}")
    plane.admin.delete(f"{CRDS}/{plural}.{group}")
    try:
        wait_until(lambda: plural in command("check").stderr, "the definition")
        message = command("check").stderr
        assert f"{plural}.{group}/{version} are not served: {remedy}" in message
        assert "jobs.batch" not in message
        assert command("apply").stderr == message, "nothing is applied while a prerequisite is missing"
        assert not exists(plane.admin, f"{ROLES}/volcano-global-controller")
    finally:
        metadata = {key: removed["metadata"][key] for key in ("name", "annotations") if key in removed["metadata"]}
        plane.admin.create(CRDS, {**removed, "metadata": metadata, "status": {}})
        wait_until(lambda: command("check").returncode == 0, "the definition")


def test_check_rejects_an_invalid_configuration(command, monkeypatch):
    monkeypatch.setenv("ADMISSION_CONFIGURATION", "apiVersion: config.volcano-global.io/v1alpha1\nqueueOrdr: x")
    assert "did you mean 'queueOrder'?" in command("check").stderr


def test_second_apply_changes_nothing(plane, command):
    """Applied objects are labelled; a queue that was edited since stays as it is."""
    assert command("apply").returncode == 0
    paths = f"{CRDS}/hyperjobs.training.volcano.sh", f"{ROLES}/volcano-global-webhook", f"{QUEUES}/default"
    for path in paths:
        assert plane.admin.get(path)["metadata"]["labels"][OURS] == "volcano-global", path
    plane.admin.merge(f"{QUEUES}/default", {"spec": {"weight": 7}})
    before = [plane.admin.get(path)["metadata"]["resourceVersion"] for path in paths]
    assert command("apply").returncode == 0
    assert [plane.admin.get(path)["metadata"]["resourceVersion"] for path in paths] == before


def test_foreign_definition_is_not_changed(plane, command, objects):
    definition = yaml.safe_load((objects / "training.volcano.sh_hyperjobs.yaml").read_text())
    definition["metadata"]["labels"] = {"from": "upstream"}
    # The API server deletes the definition of an earlier test asynchronously.
    wait_until(lambda: not exists(plane.admin, f"{CRDS}/hyperjobs.training.volcano.sh"), "the definition")
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
        wait_until(lambda: not exists(plane.admin, f"{CRDS}/hyperjobs.training.volcano.sh"), "the definition")


def test_obsolete_objects_are_pruned(plane, command, objects):
    command("apply")
    assert exists(plane.admin, f"{ROLES}/volcano-global-hyperjobs")
    (objects / "hyperjobs.yaml").unlink()
    result = command("apply")
    assert result.logged("object deleted", object="ClusterRole volcano-global-hyperjobs")
    assert not exists(plane.admin, f"{ROLES}/volcano-global-hyperjobs")


def test_objects_of_an_earlier_namespace_are_pruned(plane, command, objects):
    command("apply")
    account = "/api/v1/namespaces/{}/serviceaccounts/volcano-global-webhook"
    role = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles/volcano-global-credentials"
    for file in objects.glob("*.yaml"):
        file.write_text(file.read_text().replace("namespace: karmada-system", "namespace: left"))
    assert command("apply").returncode == 0
    for path in (account, role):
        assert exists(plane.admin, path.format("left"))
        assert not exists(plane.admin, path.format("karmada-system"))


def test_definition_in_use_is_not_removed(plane, command):
    command("apply")
    path = "/apis/training.volcano.sh/v1alpha1/namespaces/left/hyperjobs"
    spec = {"replicatedJobs": [{"name": "a", "templateSpec": {"tasks": [{"name": "t", "replicas": 1}]}}]}
    kind = {"apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob"}
    plane.admin.create(path, kind | {"metadata": {"name": "h"}, "spec": spec})
    result = command("remove")
    assert result.logged("object not deleted", object="CustomResourceDefinition hyperjobs.training.volcano.sh")
    assert exists(plane.admin, f"{path}/h")
    plane.admin.delete(f"{path}/h")


@pytest.fixture
def secret(plane):
    """Yield a function that creates a Secret in the host cluster until the end of the test, and returns its path."""
    paths = []

    def create(name, **data):
        encoded = {key.replace("_", "."): base64.b64encode(text.encode()).decode() for key, text in data.items()}
        plane.admin.create(SECRETS, {"metadata": {"name": name}, "data": encoded})
        paths.append(f"{SECRETS}/{name}")
        return paths[-1]

    yield create
    for path in paths:
        plane.admin.delete(path)


def kubeconfig_in(plane, path) -> str:
    return base64.b64decode(plane.admin.get(path)["data"]["kubeconfig"]).decode()


def test_tc3_no_token_is_logged(plane, command, secret):
    """Credentials are issued, and renewed when they are due, without a token in the log."""
    path = secret("webhook-kubeconfig")
    flags = ["--host-kubeconfig", plane.kubeconfig("admin"), "--host-namespace", HOST]
    flags += ["--account", "volcano-global-webhook=webhook-kubeconfig", "--token-days", "1"]
    issued = command("apply", *flags)
    assert issued.logged("credentials issued", account="volcano-global-webhook")
    text = kubeconfig_in(plane, path)
    token = yaml.safe_load(text)["users"][0]["user"]["token"]
    assert token not in str(issued)
    assert plane.token("admin") not in str(issued)
    with Api(plane.url, ca=plane.ca, token=token) as client:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        user = client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:karmada-system:volcano-global-webhook"
    assert not command("credentials", *flags).logged("credentials issued"), "it is not due"
    assert command("credentials", *flags, "--renew").logged("credentials issued")
    assert kubeconfig_in(plane, path) != text
    now = datetime.now(UTC)
    assert not is_due(text, server_of(text), now)
    assert is_due(text, server_of(text), now + timedelta(hours=17))
    assert is_due(text, {"server": "https://elsewhere"}, now)
    assert now + timedelta(hours=23) < expiry(token) < now + timedelta(hours=25)


def certificate_flags(plane):
    host = ("--host-kubeconfig", plane.kubeconfig("admin"), "--host-namespace", HOST)
    return (*host, "--certificate-secret", "tls")


def bundles(plane, path=MUTATING):
    """Return the published bundle of each webhook by its name."""
    encoded = {webhook["name"]: webhook["clientConfig"]["caBundle"] for webhook in plane.admin.get(path)["webhooks"]}
    return {name: base64.b64decode(bundle).decode() for name, bundle in encoded.items()}


def test_unreachable_webhook_is_not_registered(plane, command, secret):
    secret("tls", ca_crt=plane.ca)
    flags = certificate_flags(plane)
    result = command("register", *flags, "--webhook-address", "127.0.0.1:1", "--wait-seconds", "1")
    assert "was not reachable within 1 s" in result.stderr
    assert not exists(plane.admin, MUTATING)
    # The API server itself serves a certificate of that CA.
    port = plane.url.rpartition(":")[2]
    assert command("register", *flags, "--webhook-address", f"127.0.0.1:{port}").returncode == 0
    assert {*bundles(plane).values(), *bundles(plane, VALIDATING).values()} == {plane.ca}


def test_second_register_preserves_the_bundle(plane, command, secret):
    path, new = secret("tls", ca_crt=plane.ca), plane.ca * 2
    command("register", *certificate_flags(plane))
    names = list(bundles(plane))
    plane.admin.merge(path, {"data": {"ca.crt": base64.b64encode(new.encode()).decode()}})
    # One webhook is no longer in the manifest, and another one has no bundle yet.
    rename = [{"op": "replace", "path": "/webhooks/0/name", "value": "gone.volcano-global.io"}]
    plane.admin.request("PATCH", MUTATING, rename, content_type=JSON_PATCH)
    assert command("register", *certificate_flags(plane)).returncode == 0
    expected = dict.fromkeys(names, plane.ca) | {names[0]: new}
    assert bundles(plane) == expected, "certs publishes the new bundle of the others"


def test_repaired_webhook_configurations_are_removed(plane, command, objects):
    # As the controller creates a deleted one: with the metadata of the file.
    for manifest in yaml.safe_load_all((objects / "webhooks.yaml").read_text()):
        plane.admin.create((MUTATING if "Mutating" in manifest["kind"] else VALIDATING).rpartition("/")[0], manifest)
    command("remove")
    assert not exists(plane.admin, MUTATING)
    assert not exists(plane.admin, VALIDATING)


@pytest.fixture
def install_job(plane):
    """Yield the path of an install Job of the host cluster."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    path = f"/apis/batch/v1/namespaces/{HOST}/jobs"
    plane.admin.create(path, {"metadata": {"name": "install-1"}, "spec": {"template": template}})
    yield f"{path}/install-1"
    plane.admin.delete(f"{path}/install-1?propagationPolicy=Background")


@pytest.mark.parametrize(
    ("status", "is_stopped"),
    [
        pytest.param({"active": 1}, False, id="running"),
        pytest.param({"terminating": 1}, False, id="terminating"),
        pytest.param({"failed": 1}, True, id="between-attempts"),
    ],
)
def test_install_job_is_stopped_before_the_removal(plane, command, install_job, status, is_stopped):
    # The API server deletes the definitions of an earlier test asynchronously.
    wait_until(lambda: command("apply").returncode == 0, "the installation")
    plane.admin.merge(f"{install_job}/status", {"status": {"startTime": "2026-01-01T00:00:00Z", **status}})
    flags = ["--host-kubeconfig", plane.kubeconfig("admin"), "--host-namespace", HOST]
    result = command("remove", *flags, "--job", "install-1", "--wait-seconds", "1")
    assert plane.admin.get(install_job)["spec"]["suspend"] is True
    assert (result.returncode == 0) is is_stopped, result
    assert ("Job 'install-1' still has pods after 1 s" in result.stderr) is not is_stopped
    assert exists(plane.admin, f"{ROLES}/volcano-global-controller") is not is_stopped


def test_install_job_that_is_complete_or_gone_is_no_obstacle(plane, command, install_job):
    now = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:00Z"}
    conditions = [{"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")]
    plane.admin.merge(f"{install_job}/status", {"status": {**now, "succeeded": 1, "conditions": conditions}})
    flags = ["--host-kubeconfig", plane.kubeconfig("admin"), "--host-namespace", HOST, "--wait-seconds", "1"]
    for name in ("install-1", "install-2"):
        assert command("remove", *flags, "--job", name).returncode == 0


DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment"}
BATCH_JOB = {"apiVersion": "batch/v1", "kind": "Job"}
VOLCANO_JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
RECORD = {"volcano-global.io/admission": "{}"}


@pytest.fixture
def uninstall(plane, command):
    """Return a function that uninstalls with a suspended binding; it returns its suspension after that and the log."""

    def remove(*flags, template=VOLCANO_JOB, annotations=None):
        resource, suspension = {**template, "name": "x", "uid": "u"}, {"scheduling": True, "dispatching": True}
        binding = {"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding"}
        binding |= {"metadata": {"name": "x-binding", "annotations": annotations or {}}}
        plane.admin.create(BINDINGS, binding | {"spec": {"resource": resource, "suspension": suspension}})
        result = command("remove", *flags)
        suspension = plane.admin.get(f"{BINDINGS}/x-binding")["spec"]["suspension"]
        plane.admin.delete(f"{BINDINGS}/x-binding")
        return suspension, result

    return remove


@pytest.mark.parametrize(("flags", "stays_suspended"), [((), True), (("--resume",), False)], ids=["listed", "resumed"])
def test_remove_lists_and_resumes_suspended_bindings(command, uninstall, flags, stays_suspended):
    command("apply")
    suspension, result = uninstall(*flags)
    (line,) = result.logged("suspended binding found", binding="left/x-binding")
    assert line["outcome"] == ("stays suspended" if stays_suspended else "resumed")
    assert bool(result.logged("bindings stay suspended", count=1)) is stays_suspended
    assert suspension == {"scheduling": stays_suspended, "dispatching": True}


@pytest.mark.parametrize(
    ("binding", "configured", "is_ours"),
    [
        pytest.param({"template": DEPLOYMENT}, "", False, id="other-kind"),
        pytest.param({"template": BATCH_JOB}, "", False, id="job-of-another-group"),
        pytest.param({}, "exemptNamespaces: [left]", False, id="exempt-namespace"),
        pytest.param({"template": DEPLOYMENT, "annotations": RECORD}, "", True, id="with-our-record"),
        pytest.param({"template": DEPLOYMENT}, f"integrations: [{json.dumps(DEPLOYMENT)}]", True, id="gated-kind"),
        pytest.param({}, "exemptNamespaces: 1", True, id="unreadable-configuration"),
    ],
)
def test_bindings_suspended_by_others_stay_suspended(uninstall, monkeypatch, binding, configured, is_ours):
    head = "apiVersion: config.volcano-global.io/v1alpha1\nkind: VolcanoGlobalConfiguration"
    monkeypatch.setenv("ADMISSION_CONFIGURATION", f"{head}\n{configured}")
    suspension, result = uninstall("--resume", **binding)
    assert suspension["scheduling"] is not is_ours
    assert bool(result.logged("suspended binding found", binding="left/x-binding")) is is_ours
