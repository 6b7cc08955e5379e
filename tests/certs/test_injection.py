"""Tests publishing the CA bundle on a real API server, with the permissions of `certs`."""

from pathlib import Path

import pytest
import yaml

from tests.certs.commands import CommandResult, run

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/volcano-global"
REGISTRATION = yaml.safe_load("""
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: volcano-global}
webhooks:
- name: resourcebindings.volcano-global.io
  clientConfig: {url: 'https://webhook.invalid'}
  admissionReviewVersions: [v1]
  sideEffects: None
  rules:
  - {apiGroups: [example.invalid], apiVersions: ['*'], resources: ['*'], operations: [CREATE]}
""")


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "certificates"


def ensure(plane, folder, *, name="volcano-global") -> CommandResult:
    """Run `certs ensure` with its documented permissions."""
    flags = ["--directory", folder, "--dns", "localhost", "--ip", "127.0.0.1", "--settle-seconds", 0]
    return run(
        "ensure", *flags, "--webhook-configuration", name, "--kubeconfig", plane.kubeconfig("volcano-global-certs")
    )


def revision(plane) -> str:
    return plane.admin.get(CONFIGURATION)["metadata"]["resourceVersion"]


def bundle(plane) -> str:
    return plane.admin.get(CONFIGURATION)["webhooks"][0]["clientConfig"].get("caBundle", "")


@pytest.fixture(scope="module")
def plane(fresh_control_plane):
    return fresh_control_plane(controllers=False)


@pytest.fixture
def registered(plane):
    """Yield the control plane with a webhook configuration for a resource that does not exist."""
    apply(plane, REGISTRATION)
    yield plane
    plane.admin.delete(CONFIGURATION)


def apply(plane, configuration) -> None:
    plane.admin.apply(CONFIGURATION, configuration)


def changed(**webhook):
    return REGISTRATION | {"webhooks": [REGISTRATION["webhooks"][0] | webhook]}


def elsewhere():
    return changed(clientConfig={"url": "https://elsewhere.invalid"})


def test_unchanged_bundle_is_not_written(registered, folder):
    assert ensure(registered, folder).returncode == 0
    before = revision(registered)
    again = ensure(registered, folder)
    assert (again.returncode, again.stdout, revision(registered)) == (0, "", before)


def test_publishing_changes_only_the_bundle(registered, folder):
    before = registered.admin.get(CONFIGURATION)
    ensure(registered, folder)
    after = registered.admin.get(CONFIGURATION)
    assert after["webhooks"][0]["clientConfig"].pop("caBundle")
    assert after["webhooks"] == before["webhooks"]


def test_applying_the_manifest_again_leaves_the_bundle(registered, folder):
    ensure(registered, folder)
    published = bundle(registered)
    apply(registered, elsewhere())
    assert registered.admin.get(CONFIGURATION)["webhooks"][0]["clientConfig"]["url"] == "https://elsewhere.invalid"
    assert bundle(registered) == published


def test_other_webhook_configurations_are_forbidden(registered, folder):
    result = ensure(registered, folder, name="mutating-config")
    assert result.returncode == 1
    assert "forbidden" in result.stderr


def test_no_leaf_is_issued_before_the_bundle_is_published(plane, folder):
    ensure(plane, folder)
    assert not (folder / "serving").exists()


def test_renamed_webhook_can_be_applied(registered, folder):
    ensure(registered, folder)
    apply(registered, changed(name="bindings.volcano-global.io"))
    assert [webhook["name"] for webhook in registered.admin.get(CONFIGURATION)["webhooks"]] == [
        "bindings.volcano-global.io"
    ]
    ensure(registered, folder)
    assert bundle(registered)
