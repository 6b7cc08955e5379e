"""Tests the Secret store on a real API server, with the documented permissions."""

import base64
import contextlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import create_authority, load_bundle
from certs.store import AUTHORITY, SERVING, ConflictError, MissingSecretError, SecretStore
from controller.kube.errors import Forbidden, NotFound
from localup.apply import apply, wait_until
from tests.certs.installed import CONFIGURATIONS, NAMESPACE, SECRETS, bundles, flags, process, run
from tests.certs.test_reconciler import reconciler as directory_reconciler
from tests.webhook.installation import registration

FILES = {"tls.crt": b"a", "tls.key": b"b", "ca.crt": b"c"}


def test_set_is_one_secret_of_type_tls(plane, store):
    store.write(SERVING, FILES, expected=None)
    store.write(AUTHORITY, FILES, expected=None)
    secrets = {secret["metadata"]["name"]: secret for secret in plane.admin.get(SECRETS)["items"]}
    assert set(secrets) == {"volcano-global-webhook", "volcano-global-webhook-authority"}
    assert secrets["volcano-global-webhook"]["type"] == "kubernetes.io/tls"
    assert store.read(SERVING).files == FILES


def test_secret_is_replaced_as_a_whole(store):
    assert store.read(SERVING) is None
    store.write(SERVING, FILES | {"more": b"d"}, expected=None)
    store.write(SERVING, FILES, expected=store.read(SERVING))
    assert store.read(SERVING).files == FILES
    with pytest.raises(ConflictError):
        store.write(SERVING, FILES, expected=None)


def test_missing_namespace_is_named(plane):
    store = SecretStore(plane.kubeconfig("admin"), "misspelled", "volcano-global-webhook")
    with pytest.raises(NotFound, match='namespaces "misspelled" not found'):
        store.write(SERVING, FILES, expected=None)


def test_empty_secret_of_the_chart_is_filled(plane, store):
    plane.admin.create(SECRETS, {"metadata": {"name": "volcano-global-webhook"}})
    store.write(SERVING, FILES, expected=store.read(SERVING))
    assert store.read(SERVING).files == FILES


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param(
            lambda store, first: store.write(SERVING, FILES | {"tls.crt": b"x"}, expected=first), id="written"
        ),
        pytest.param(None, id="deleted"),
    ],
)
def test_write_after_a_concurrent_change_conflicts(plane, store, meanwhile):
    store.write(SERVING, FILES, expected=None)
    first = store.read(SERVING)
    meanwhile(store, first) if meanwhile else plane.admin.delete(f"{SECRETS}/volcano-global-webhook")
    current = store.read(SERVING)
    with pytest.raises(ConflictError, match="by another process"):
        store.write(SERVING, FILES, expected=first)
    assert store.read(SERVING) == current


def test_certs_user_has_no_other_permissions(plane):
    other = SecretStore(plane.kubeconfig("volcano-global-certs"), NAMESPACE, "another")
    with pytest.raises(Forbidden):
        other.read(SERVING)


def test_deleted_secret_names_what_creates_it(plane, store):
    """The CronJob of the chart may only patch the Secrets."""
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/volcano-global-certs"
    assert run(plane, "ensure").returncode == 0
    plane.admin.delete(f"{SECRETS}/volcano-global-webhook")
    rules = plane.admin.get(role)["rules"]
    plane.admin.merge(role, {"rules": [rule for rule in rules if rule["verbs"] != ["create"]]})
    try:
        # The API server may know the former role for a moment.
        wait_until(lambda: _is_forbidden(plane, store), "the role without create")
        failed = run(plane, "ensure")
    finally:
        plane.admin.merge(role, {"rules": rules})
    assert (failed.returncode, failed.stdout) == (1, "")
    says = "certs: Secret 'volcano-global-webhook' does not exist, and this user may create none: run helm upgrade"
    assert failed.stderr.startswith(says)
    wait_until(lambda: run(plane, "ensure").returncode == 0, "the role again")
    assert store.read(SERVING) is not None


def _is_forbidden(plane, store):
    with contextlib.suppress(MissingSecretError):
        store.write("probe", FILES, expected=None)
        plane.admin.delete(f"{SECRETS}/volcano-global-webhook-probe")
        return False
    return True


def test_publishing_changes_only_the_bundle(plane, store):
    """Applying the manifest again, with another address or name, leaves the bundle of the webhooks that remain."""
    path = f"{CONFIGURATIONS}/mutatingwebhookconfigurations/volcano-global"
    apply(plane.admin, registration("https://127.0.0.1:9"))
    assert run(plane, "ensure").returncode == 0
    before = plane.admin.get(path)
    assert all("127.0.0.1:9/" in webhook["clientConfig"]["url"] for webhook in before["webhooks"])
    again = run(plane, "ensure")
    assert (again.returncode, again.stdout) == (0, "")
    assert plane.admin.get(path) == before
    moved = registration("https://127.0.0.1:10")
    apply(plane.admin, moved)
    assert set(bundles(plane)) == {store.read(AUTHORITY).files["ca.crt"]}
    for webhook in moved[0]["webhooks"]:
        webhook["name"] = f"renamed-{webhook['name']}"
    apply(plane.admin, moved)
    assert b"" in bundles(plane)
    assert run(plane, "ensure").returncode == 0
    after = plane.admin.get(path)["webhooks"]
    for webhook in before["webhooks"]:
        webhook["name"] = f"renamed-{webhook['name']}"
        webhook["clientConfig"]["url"] = webhook["clientConfig"]["url"].replace("127.0.0.1:9/", "127.0.0.1:10/")
    assert after == before["webhooks"]


def test_no_leaf_is_issued_before_the_bundle_is_published(plane, store):
    forbidden = run(plane, "ensure", "--webhook-configuration", "mutating-config")
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        plane.admin.delete(f"{CONFIGURATIONS}/{kind}/volcano-global")
    missing = run(plane, "ensure")
    apply(plane.admin, registration("https://127.0.0.1:9"))
    assert (forbidden.returncode, missing.returncode) == (1, 1)
    assert "forbidden" in forbidden.stderr
    assert "does not exist: install it" in missing.stderr
    assert store.read(SERVING) is None


def test_ca_is_published_where_the_webhook_is_registered_already(plane, store):
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        plane.admin.delete(f"{CONFIGURATIONS}/{kind}/volcano-global")
    # Two thirds of so short a lifetime have passed at once.
    assert run(plane, "ensure", "--before-registration", "--authority-days", "0.001").returncode == 0
    first = store.read(AUTHORITY).files["ca.crt"]
    other = create_authority(datetime.now(UTC), timedelta(days=1)).certificate_pem()
    configurations = registration("https://127.0.0.1:9")
    for webhook in (webhook for configuration in configurations for webhook in configuration["webhooks"]):
        webhook["clientConfig"]["caBundle"] = base64.b64encode(other).decode()
    apply(plane.admin, configurations)
    renewed = run(plane, "ensure", "--before-registration")
    events = [json.loads(line)["event"] for line in renewed.stdout.splitlines()]
    assert events == ["CA created", *["bundle published"] * 2, "serving certificate issued"]
    assert set(bundles(plane)) == {store.read(AUTHORITY).files["tls.crt"] + first + other}
    assert run(plane, "ensure").returncode == 0
    assert set(bundles(plane)) == {store.read(AUTHORITY).files["tls.crt"] + first}


def test_ca_that_was_lost_stays_published_while_replicas_need_it(plane, store, replica, tmp_path):
    assert run(plane, "ensure").returncode == 0
    former, folder = store.read(AUTHORITY).files["ca.crt"], tmp_path / "mounted"
    folder.mkdir()
    served = _mount(store, folder, replica)
    plane.admin.delete(f"{SECRETS}/volcano-global-webhook-authority")
    foreign = create_authority(datetime.now(UTC), timedelta(days=1)).certificate_pem()
    configurations = registration("https://127.0.0.1:9")
    for webhook in (webhook for configuration in configurations for webhook in configuration["webhooks"]):
        webhook["clientConfig"]["caBundle"] = base64.b64encode(foreign + former).decode()
    apply(plane.admin, configurations)
    options = ("ensure", "--replica", served.place, "--overlap-seconds", "0")
    for _ in range(2):
        assert run(plane, *options).returncode == 0
        assert set(bundles(plane)) == {store.read(AUTHORITY).files["tls.crt"] + former}
    _mount(store, folder)
    served.load()
    assert run(plane, *options).returncode == 0
    assert set(bundles(plane)) == {store.read(AUTHORITY).files["tls.crt"]}


def _mount(store, folder, replica=lambda _: None):
    """Write the serving certificate to a folder, as the kubelet does; return what *replica* starts with it."""
    for name, contents in store.read(SERVING).files.items():
        (folder / name).write_bytes(contents)
    return replica(folder)


@pytest.mark.usefixtures("store")
def test_concurrent_runs_agree(plane, store):
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: process(plane, "ensure"), range(4)))
    assert sum(result.returncode == 0 for result in results) >= 3, [result.stderr for result in results]
    run(plane, "ensure")
    authority, serving = store.read(AUTHORITY).files, store.read(SERVING).files
    assert len(load_bundle(authority["ca.crt"])) == 1
    load_bundle(serving["tls.crt"])[0].verify_directly_issued_by(load_bundle(authority["tls.crt"])[0])
    assert set(bundles(plane)) == {authority["ca.crt"]}


@pytest.mark.usefixtures("store")
def test_status_reports_published_and_served(plane, tmp_path, replica):
    run(plane, "ensure")
    directory_reconciler(tmp_path / "other").run()
    other = replica(tmp_path / "other" / "serving")
    lines = run(plane, "status", "--replica", other.place, "--replica", "127.0.0.1:9").stdout.splitlines()
    assert lines[0].startswith("authority: valid until ")
    assert lines[1].startswith("serving: valid until ")
    assert len(lines) == 4 + len(bundles(plane))
    assert lines[2] == (
        "published in volcano-global: mutatingwebhookconfigurations/resourcebindings.volcano-global.io:"
        " 1 CA, covers the serving certificate"
    )
    assert lines[-2:] == [f"replica {other.place}: serves another certificate", "replica 127.0.0.1:9: does not answer"]


def test_loop_repairs_drift_and_survives_failures(plane, store):
    command = [sys.executable, "-m", "certs", *flags(plane, "ensure", "--every", "0.3")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as loop:
        try:
            check_drift(plane, loop, store)
        finally:
            loop.terminate()
    assert loop.returncode == 0


def check_drift(plane, loop, store):
    wait_until(lambda: store.read(SERVING), "the first certificate")
    published = store.read(AUTHORITY).files["ca.crt"]
    assert set(bundles(plane)) == {published}
    path = f"{CONFIGURATIONS}/validatingwebhookconfigurations/volcano-global"
    emptied = plane.admin.get(path)
    for webhook in emptied["webhooks"]:
        webhook["clientConfig"].pop("caBundle")
    plane.admin.request("PUT", path, emptied)
    wait_until(lambda: set(bundles(plane)) == {published}, "the bundle again")
    plane.admin.delete(f"{CONFIGURATIONS}/mutatingwebhookconfigurations/volcano-global")
    plane.admin.delete(path)
    assert any("does not exist: install it" in line for line in loop.stdout if '"reconcile failed"' in line)
    apply(plane.admin, registration("https://127.0.0.1:9"))
    wait_until(lambda: set(bundles(plane)) == {published}, "the bundle of new webhooks")
    assert loop.poll() is None
