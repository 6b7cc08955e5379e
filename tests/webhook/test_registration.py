"""Tests the webhook as a real API server calls it: what is stored and what is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from localup.api import ApiError
from localup.apply import wait_until
from tests.webhook.conftest import ensure_certificates
from tests.webhook.installation import BINDINGS, ensure, fresh, is_suspended, register
from tests.webhook.process import WebhookProcess
from tests.webhook.registration import registration
from tests.webhook.reviews import binding, job_binding
from webhook.app import Configuration, admission_handlers
from webhook.queue_cache import QueueCache

CLUSTER_BINDINGS = "/apis/work.karmada.io/v1alpha2/clusterresourcebindings"
MEMBERS = [{"name": "member1"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    ensure_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def webhook(plane, karmada, folder) -> Iterator[WebhookProcess]:
    """Yield a running webhook, installed with the documented commands."""
    with WebhookProcess(folder / "serving", "--drain-seconds", "0") as running:
        register(plane, running.port)
        ensure(plane, folder)
        wait_until(lambda: is_suspended(karmada, job_binding()), "webhook at work")
        yield running


@pytest.fixture
def elsewhere(plane, karmada, webhook):
    """Yield a function that registers another port, until the end of the test."""
    yield lambda port, *kinds: register(plane, port, *kinds)
    register(plane, webhook.port)
    wait_until(lambda: is_suspended(karmada, job_binding()), "webhook at work again")


def store(karmada, new, *, path=BINDINGS):
    return karmada.create(path, fresh(new))


def try_out(karmada, new, *, path=BINDINGS):
    return karmada.create(f"{path}?dryRun=All", fresh(new))


def is_refused(karmada, new) -> bool:
    try:
        try_out(karmada, new)
    except ApiError as error:
        return "resourcebindings.volcano-global.io" in error.message
    return False


@pytest.mark.usefixtures("webhook")
@pytest.mark.parametrize(
    ("spec", "suspension"),
    [
        pytest.param({}, {"scheduling": True}, id="plain"),
        pytest.param({"suspension": {"scheduling": False}}, {"scheduling": True}, id="resumed-beforehand"),
        pytest.param(
            {"suspension": {"dispatching": True}}, {"dispatching": True, "scheduling": True}, id="dispatching-suspended"
        ),
        pytest.param(
            {"suspension": {"dispatchingOnClusters": {"clusterNames": ["member1"]}}, "clusters": MEMBERS},
            {"dispatchingOnClusters": {"clusterNames": ["member1"]}, "scheduling": True},
            id="dispatching-suspended-on-clusters-and-clusters-preset",
        ),
        pytest.param({"clusters": MEMBERS}, {"scheduling": True}, id="clusters-preset"),
    ],
)
def test_binding_of_a_volcano_job_is_stored_suspended(karmada, spec, suspension):
    path = f"{BINDINGS}/{store(karmada, job_binding(**spec))['metadata']['name']}"
    found = karmada.get(path)["spec"]
    assert found["suspension"] == suspension
    assert "clusters" not in found
    assert found["schedulerName"] == "default-scheduler"


@pytest.mark.usefixtures("webhook")
def test_cluster_resource_binding_is_suspended_too(karmada):
    new = job_binding(clusters=MEMBERS) | {"kind": "ClusterResourceBinding"}
    found = store(karmada, new, path=CLUSTER_BINDINGS)["spec"]
    assert found["suspension"] == {"scheduling": True}
    assert "clusters" not in found


@pytest.mark.usefixtures("webhook")
def test_dry_run_shows_the_suspended_binding(karmada):
    assert try_out(karmada, job_binding(clusters=MEMBERS))["spec"]["suspension"] == {"scheduling": True}


@pytest.mark.usefixtures("webhook")
@pytest.mark.parametrize("api_version", ["apps/v1", "batch/v1", "v1"])
def test_ungated_kinds_are_stored_unchanged(karmada, api_version):
    found = store(karmada, binding(api_version, "Job", clusters=MEMBERS))["spec"]
    assert "suspension" not in found
    assert found["clusters"] == MEMBERS


def test_outage_refuses_only_gated_kinds(karmada, elsewhere, folder):
    with WebhookProcess(folder / "serving", "--drain-seconds", "0") as other:
        elsewhere(other.port)
        wait_until(lambda: is_suspended(karmada, job_binding()), "the other webhook")
    wait_until(lambda: is_refused(karmada, job_binding()), "the other webhook's end")
    with pytest.raises(ApiError, match="failed calling webhook"):
        store(karmada, job_binding())
    with pytest.raises(ApiError, match="failed calling webhook"):
        store(karmada, job_binding() | {"kind": "ClusterResourceBinding"}, path=CLUSTER_BINDINGS)
    found = store(karmada, binding("apps/v1", "Deployment", clusters=MEMBERS))["spec"]
    assert found["clusters"] == MEMBERS


@pytest.mark.usefixtures("webhook")
def test_binding_without_a_kind_is_refused(karmada):
    new = job_binding()
    del new["spec"]["resource"]
    with pytest.raises(ApiError):
        store(karmada, new)


def test_webhook_certificate_of_another_ca_is_untrusted(karmada, elsewhere, tmp_path):
    ensure_certificates(tmp_path)
    with WebhookProcess(tmp_path / "serving", "--drain-seconds", "0") as impostor:
        elsewhere(impostor.port)
        wait_until(lambda: is_refused(karmada, job_binding()), "the impostor's registration")
        with pytest.raises(ApiError, match="certificate signed by unknown authority"):
            store(karmada, job_binding())


def test_configured_integration_is_gated_by_rule_and_webhook(karmada, elsewhere, folder, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(
        "{apiVersion: config.volcano-global.io/v1alpha1, kind: VolcanoGlobalConfiguration,"
        " integrations: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: v1, kind: Pod}]}"
    )
    flags = ("--drain-seconds", "0", "--admission-configuration", str(file))
    with WebhookProcess(folder / "serving", *flags) as other:
        elsewhere(other.port, "apps/Deployment", "/Pod")
        wait_until(lambda: is_suspended(karmada, binding("apps/v1", "Deployment")), "the other webhook")
        assert is_suspended(karmada, binding("v1", "Pod"))
        assert is_suspended(karmada, job_binding())
        assert not is_suspended(karmada, binding("apps/v1", "StatefulSet"))


def test_exempt_namespace_is_not_gated(karmada, elsewhere, folder, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(
        "{apiVersion: config.volcano-global.io/v1alpha1, kind: VolcanoGlobalConfiguration, exemptNamespaces: [ml]}"
    )
    with WebhookProcess(folder / "serving", "--drain-seconds", "0", "--admission-configuration", str(file)) as other:
        elsewhere(other.port)
        wait_until(lambda: not is_suspended(karmada, job_binding()), "the other webhook")
        assert "suspension" not in store(karmada, job_binding())["spec"]


REGISTERED = [
    (each["kind"], webhook) for each in registration("https://webhook.example") for webhook in each["webhooks"]
]


def test_binding_webhook_fails_closed_for_gated_kinds_only():
    webhook = REGISTERED[0][1]
    assert webhook["clientConfig"] == {"url": "https://webhook.example/resourcebindings/mutate"}
    assert (webhook["failurePolicy"], webhook["reinvocationPolicy"]) == ("Fail", "IfNeeded")
    (rule,) = webhook["rules"]
    assert (rule["apiVersions"], rule["operations"]) == (["*"], ["CREATE"])
    (condition,) = webhook["matchConditions"]
    assert condition["expression"].endswith("in ['batch.volcano.sh/Job']")


@pytest.mark.parametrize(("kind", "webhook"), REGISTERED)
def test_webhook_rules_are_narrow(kind, webhook):
    assert webhook["clientConfig"]["url"].startswith("https://webhook.example/")
    assert "service" not in webhook["clientConfig"]
    assert (webhook["sideEffects"], webhook["matchPolicy"]) == ("None", "Equivalent")
    assert webhook["admissionReviewVersions"] == ["v1"]
    assert 3 <= webhook["timeoutSeconds"] <= 5
    (rule,) = webhook["rules"]
    assert "*" not in "".join((*rule["apiGroups"], *rule["resources"], *rule["operations"]))
    assert rule["apiVersions"] == ["*"]


def test_registered_paths_match_the_routes():
    judged = admission_handlers(Configuration(None), QueueCache())
    registered = {webhook["clientConfig"]["url"].removeprefix("https://webhook.example") for _, webhook in REGISTERED}
    assert registered <= set(judged)
    assert {path for path in judged if not path.startswith("/hyperjobs")} <= registered
