"""Secrets on a real API server as a store, with no more rights than the README grants."""

import base64
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from certs.authority import load_bundle
from certs.secret import Secrets
from certs.store import ConflictError
from certs.upkeep import AUTHORITY, SERVING
from controller.kube import Forbidden
from localup.apply import apply
from tests.certs import commands
from tests.certs.test_rounds import upkeep as directory_upkeep
from tests.webhook.registration import registration

NAMESPACE = "volcano-global"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
FILES = {"tls.crt": b"a", "tls.key": b"b", "ca.crt": b"c"}
#: What `certs` may do in the cluster that has the Secrets.
RIGHTS = list(
    yaml.safe_load_all("""
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: volcano-global-certs, namespace: volcano-global}
rules:
- {apiGroups: [''], resources: [secrets], verbs: [create]}
- apiGroups: ['']
  resources: [secrets]
  resourceNames: [volcano-global-webhook, volcano-global-webhook-authority]
  verbs: [get, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: volcano-global-certs, namespace: volcano-global}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: volcano-global-certs}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: volcano-global-certs}]
""")
)


@pytest.fixture(scope="module")
def plane(fresh_control_plane):
    plane = fresh_control_plane(controllers=False)
    plane.admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    apply(plane.admin, [*RIGHTS, *registration("https://127.0.0.1:9")])
    return plane


@pytest.fixture
def store(plane):
    """Return an empty store."""
    plane.admin.delete(SECRETS)
    return Secrets(plane.kubeconfig("volcano-global-certs"), NAMESPACE, "volcano-global-webhook")


def flags(plane, *more):
    kubeconfig = plane.kubeconfig("volcano-global-certs")
    place = [
        "--secret-namespace",
        NAMESPACE,
        "--secret-name",
        "volcano-global-webhook",
        "--host-kubeconfig",
        kubeconfig,
    ]
    where = ["--webhook-configuration", "volcano-global", "--kubeconfig", kubeconfig, "--dns", "localhost"]
    where += ["--host-kubeconfig", kubeconfig]
    return [more[0], *place, *where, *more[1:]]


def run(plane, *more):
    return commands.run(*flags(plane, *more, "--settle-seconds", "0"))


def process(plane, *more):
    command = [sys.executable, "-m", "certs", *flags(plane, *more)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def bundles(plane):
    kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    found = [plane.admin.get(f"{CONFIGURATIONS}/{kind}/volcano-global")["webhooks"] for kind in kinds]
    return [base64.b64decode(each["clientConfig"].get("caBundle", "")) for webhooks in found for each in webhooks]


def test_a_set_is_one_secret_of_the_kind_that_webhooks_mount(plane, store):
    store.write(SERVING, FILES, over=None)
    store.write(AUTHORITY, FILES, over=None)
    found = {each["metadata"]["name"]: each for each in plane.admin.get(SECRETS)["items"]}
    assert set(found) == {"volcano-global-webhook", "volcano-global-webhook-authority"}
    assert found["volcano-global-webhook"]["type"] == "kubernetes.io/tls"
    assert store.read(SERVING).files == FILES


def test_an_empty_place_is_none(store):
    assert store.read(SERVING) is None


def test_a_secret_is_written_as_a_whole(store):
    store.write(SERVING, FILES | {"more": b"d"}, over=None)
    store.write(SERVING, FILES, over=store.read(SERVING))
    assert store.read(SERVING).files == FILES


def test_an_empty_secret_that_an_installer_made_is_filled(plane, store):
    plane.admin.create(SECRETS, {"metadata": {"name": "volcano-global-webhook"}})
    store.write(SERVING, FILES, over=store.read(SERVING))
    assert store.read(SERVING).files == FILES


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param(lambda store, first: store.write(SERVING, FILES | {"tls.crt": b"x"}, over=first), id="written"),
        pytest.param(None, id="deleted"),
    ],
)
def test_nothing_is_written_over_what_was_not_read(plane, store, meanwhile):
    store.write(SERVING, FILES, over=None)
    first = store.read(SERVING)
    meanwhile(store, first) if meanwhile else plane.admin.delete(f"{SECRETS}/volcano-global-webhook")
    left = store.read(SERVING)
    with pytest.raises(ConflictError, match="by somebody else meanwhile"):
        store.write(SERVING, FILES, over=first)
    assert store.read(SERVING) == left


def test_two_do_not_both_create(store):
    store.write(SERVING, FILES, over=None)
    with pytest.raises(ConflictError):
        store.write(SERVING, FILES, over=None)


def test_it_has_no_other_rights(plane):
    other = Secrets(plane.kubeconfig("volcano-global-certs"), NAMESPACE, "another")
    with pytest.raises(Forbidden):
        other.read(SERVING)


@pytest.mark.usefixtures("store")
def test_ensure_publishes_one_bundle_for_mutating_and_validating_webhooks(plane, store):
    assert run(plane, "ensure").returncode == 0
    authority = store.read(AUTHORITY).files["ca.crt"]
    assert set(bundles(plane)) == {authority}
    again = run(plane, "ensure")
    assert (again.returncode, again.stdout) == (0, "")


@pytest.mark.usefixtures("store")
def test_many_at_once_agree(plane, store):
    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(lambda _: process(plane, "ensure"), range(4)))
    assert sum(each.returncode == 0 for each in ended) >= 3, [each.stderr for each in ended]
    run(plane, "ensure")
    authority, serving = store.read(AUTHORITY).files, store.read(SERVING).files
    assert len(load_bundle(authority["ca.crt"])) == 1
    load_bundle(serving["tls.crt"])[0].verify_directly_issued_by(load_bundle(authority["tls.crt"])[0])
    assert set(bundles(plane)) == {authority["ca.crt"]}


@pytest.mark.usefixtures("store")
def test_status_tells_what_is_published_and_served(plane, folder_of_certificates, replica):
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
    directory_upkeep(tmp_path / "other").run()
    return tmp_path / "other"


def test_a_loop_repairs_what_drifts_and_survives_what_fails(plane, store):
    command = [sys.executable, "-m", "certs", *flags(plane, "ensure", "--every", "0.3")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as loop:
        try:
            drift(plane, loop, store)
        finally:
            loop.terminate()
    assert loop.returncode == 0


def drift(plane, loop, store):
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
    wait(lambda: "does not exist: install it" in told(loop, "round failed"))
    apply(plane.admin, registration("https://127.0.0.1:9"))
    wait(lambda: set(bundles(plane)) == {published})
    assert loop.poll() is None


def told(process, event):
    for line in process.stdout:
        entry = json.loads(line)
        if entry["event"] == event:
            return entry["reason"]
    return ""


def wait(question, seconds=20):
    ends = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_what_cert_manager_keeps_is_published_beside_what_is_still_needed(plane, store, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        directory_upkeep(folder).run()
    files = [{name: (folder / "serving" / name).read_bytes() for name in FILES} for folder in (first, second)]
    store.write(SERVING, files[0], over=None)
    empty = registration("https://127.0.0.1:9")
    for each in empty:
        for webhook in each["webhooks"]:
            webhook["clientConfig"]["caBundle"] = ""
    apply(plane.admin, empty)
    assert run(plane, "ensure", "--external").returncode == 0
    assert set(bundles(plane)) == {files[0]["ca.crt"]}
    store.write(SERVING, files[1], over=store.read(SERVING))
    assert run(plane, "ensure", "--external").returncode == 0
    assert set(bundles(plane)) == {files[1]["ca.crt"] + files[0]["ca.crt"]}
    status = run(plane, "status", "--external").stdout.splitlines()
    assert status[0] == "serving: kept by somebody else"
    assert status[1].endswith("2 CAs, covers the serving certificate")
    # It keeps nothing of its own.
    assert store.read(AUTHORITY) is None


def test_what_cert_manager_has_not_issued_yet_is_a_sentence(plane, store):
    assert store.read(SERVING) is None
    ended = run(plane, "ensure", "--external")
    assert ended.returncode == 1
    assert ended.stderr == "certs: there is no certificate with its ca.crt yet: see who should issue it\n"
