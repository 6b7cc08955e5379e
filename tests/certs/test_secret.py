"""Tests the Secret store on a real API server, with the documented permissions."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from certs.authority import load_bundle
from certs.store import AUTHORITY, SERVING, ConflictError, SecretStore
from controller.kube.errors import Forbidden
from localup.apply import apply
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


def test_missing_secret_reads_as_none(store):
    assert store.read(SERVING) is None


def test_secret_is_replaced_as_a_whole(store):
    store.write(SERVING, FILES | {"more": b"d"}, expected=None)
    store.write(SERVING, FILES, expected=store.read(SERVING))
    assert store.read(SERVING).files == FILES


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


def test_second_create_conflicts(store):
    store.write(SERVING, FILES, expected=None)
    with pytest.raises(ConflictError):
        store.write(SERVING, FILES, expected=None)


def test_certs_user_has_no_other_permissions(plane):
    other = SecretStore(plane.kubeconfig("volcano-global-certs"), NAMESPACE, "another")
    with pytest.raises(Forbidden):
        other.read(SERVING)


@pytest.mark.usefixtures("store")
def test_ensure_publishes_one_bundle_in_both_configurations(plane, store):
    assert run(plane, "ensure").returncode == 0
    authority = store.read(AUTHORITY).files["ca.crt"]
    assert set(bundles(plane)) == {authority}
    again = run(plane, "ensure")
    assert (again.returncode, again.stdout) == (0, "")


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
def test_status_reports_published_and_served(plane, folder_of_certificates, replica):
    run(plane, "ensure")
    other = replica(folder_of_certificates / "serving")
    lines = run(plane, "status", "--replica", other.place, "--replica", "127.0.0.1:9").stdout.splitlines()
    assert lines[0].startswith("authority: valid until ")
    assert lines[1].startswith("serving: valid until ")
    assert len(lines) == 4 + len(bundles(plane))
    assert lines[2] == (
        "published in volcano-global: mutatingwebhookconfigurations/resourcebindings.volcano-global.io:"
        " 1 CA, covers the serving certificate"
    )
    assert lines[-2:] == [f"replica {other.place}: serves another certificate", "replica 127.0.0.1:9: does not answer"]


@pytest.fixture
def folder_of_certificates(tmp_path):
    directory_reconciler(tmp_path / "other").run()
    return tmp_path / "other"


def test_loop_repairs_drift_and_survives_failures(plane, store):
    command = [sys.executable, "-m", "certs", *flags(plane, "ensure", "--every", "0.3")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as loop:
        try:
            check_drift(plane, loop, store)
        finally:
            loop.terminate()
    assert loop.returncode == 0


def check_drift(plane, loop, store):
    wait(lambda: store.read(SERVING))
    published = store.read(AUTHORITY).files["ca.crt"]
    assert set(bundles(plane)) == {published}
    path = f"{CONFIGURATIONS}/validatingwebhookconfigurations/volcano-global"
    emptied = plane.admin.get(path)
    for webhook in emptied["webhooks"]:
        webhook["clientConfig"].pop("caBundle")
    plane.admin.request("PUT", path, emptied)
    wait(lambda: set(bundles(plane)) == {published})
    plane.admin.delete(f"{CONFIGURATIONS}/mutatingwebhookconfigurations/volcano-global")
    plane.admin.delete(path)
    wait(lambda: "does not exist: install it" in logged(loop, "reconcile failed"))
    apply(plane.admin, registration("https://127.0.0.1:9"))
    wait(lambda: set(bundles(plane)) == {published})
    assert loop.poll() is None


def logged(process, event):
    for line in process.stdout:
        entry = json.loads(line)
        if entry["event"] == event:
            return entry["reason"]
    return ""


def wait(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
