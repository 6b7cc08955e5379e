"""Tests the installer's modules without an API server."""

import base64
import contextlib
import json
import socket
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from structlog.testing import capture_logs

import install.__main__
from certs.authority import KeyPair, create_authority, issue
from controller.api.keys import RESOURCE_BINDINGS
from controller.kube.client import Api
from controller.kube.errors import ServerError
from controller.kube.timing import Backoff
from install.checks import customization_warnings, version_violations
from install.credentials import CredentialsError, TokenOptions, is_due, reduced_days, with_token
from install.credentials import issue as issue_credentials
from install.objects import MAPPINGS, InstallError, ManifestError, is_managed, path_of, read_folder
from install.registration import Address, bundles, wait_for_rollout, wait_for_webhook, with_bundles
from install.removal import SuspendedBinding, outcomes
from install.settings import parse_flags
from tests import commands
from tests.certs.replicas import Replica
from tests.scripted_server import answering, refusing, scripted_server

NOW, DAY = datetime.now(UTC), timedelta(days=1)
CLAIMS = base64.urlsafe_b64encode(json.dumps({"iat": NOW.timestamp(), "exp": (NOW + DAY).timestamp()}).encode())
TOKEN = f"head.{CLAIMS.decode().rstrip('=')}.signature"

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters:
- {name: other, cluster: {server: 'https://other'}}
- {name: k, cluster: {server: 'https://karmada:5443', certificate-authority: ca.crt, tls-server-name: karmada}}
users: [{name: admin, user: {client-key-data: c2VjcmV0}}]
contexts: [{name: c, context: {cluster: k, user: admin}}]
current-context: c
"""


def test_derived_kubeconfig_has_no_administrator_credentials(tmp_path):
    (tmp_path / "ca.crt").write_text("CA")
    kubeconfig = with_token(KUBECONFIG, "the-token", folder=tmp_path)
    assert "https://karmada:5443" in kubeconfig
    assert "tls-server-name: karmada" in kubeconfig
    assert "certificate-authority-data: Q0E=" in kubeconfig
    assert "the-token" in kubeconfig
    assert "c2VjcmV0" not in kubeconfig
    assert "https://other" not in kubeconfig


@pytest.mark.parametrize("text", ["", "[]", "current-context: c", "clusters: {}"])
def test_kubeconfig_without_a_cluster_is_an_error(text):
    with pytest.raises(CredentialsError, match="no current context"):
        with_token(text, "t")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "users: [{user: {token: nonsense}}]",
        "users: [{user: {token: a.b.c}}]",
        "users: [{user: {token: 5}}]",
        "users: [{user: {token: a.é.c}}]",
        f"users: [{{user: {{token: {TOKEN}}}}}]\nclusters: [{{cluster: rubbish}}]",
        b"\xff\xfe\x00".decode(errors="replace"),
    ],
)
def test_unreadable_kubeconfig_is_due(text):
    assert is_due(text, {"server": "https://k"}, datetime.now(UTC))


@pytest.mark.parametrize("kubeconfig", [b"\xff\xfe\x00", b"users: [{user: {token: 5}}]"])
async def test_rubbish_in_a_secret_is_replaced(tmp_path, kubeconfig):
    path = "/api/v1/namespaces/host/secrets/s"
    file = tmp_path / "karmada"
    file.write_text(KUBECONFIG.replace(", certificate-authority: ca.crt", ""))
    options = TokenOptions({"controller": "s"}, namespace="k", host_namespace="host", lifetime=DAY)
    async with scripted_server() as server, Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api:
        server.says("GET", path, answering(200, {"data": {"kubeconfig": base64.b64encode(kubeconfig).decode()}}))
        token = answering(201, {"status": {"token": TOKEN}})
        server.says("POST", "/api/v1/namespaces/k/serviceaccounts/controller/token", token)
        server.says("PATCH", path, answering(200, {}))
        await issue_credentials(api, api, options, kubeconfig=file)


@pytest.mark.parametrize(("requested", "reduced"), [(timedelta(days=1), None), (timedelta(days=90), 1)])
def test_reduced_lifetime_of_a_token_is_recognized(requested, reduced):
    claims = base64.urlsafe_b64encode(json.dumps({"iat": 1000, "exp": 1000 + 86400}).encode()).decode().rstrip("=")
    assert reduced_days(f"head.{claims}.signature", requested) == reduced


@pytest.mark.parametrize(
    ("major", "minor", "is_supported"),
    [("1", "29", False), ("1", "30", True), ("1", "30+", True), ("2", "0", True), ("1", "", False)],
)
def test_minimum_api_server_version(major, minor, is_supported):
    assert (list(version_violations(major, minor)) == []) is is_supported


def test_objects_are_ordered_and_labelled(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "kind: MutatingWebhookConfiguration\nmetadata: {name: w}\n---\nkind: ClusterRole\nmetadata: {name: r}\n"
    )
    (tmp_path / "b.yaml").write_text("kind: CustomResourceDefinition\nmetadata: {name: d, labels: {a: b}}\n")
    manifests = read_folder(tmp_path)
    assert [manifest["metadata"]["name"] for manifest in manifests] == ["d", "r", "w"]
    assert all(is_managed(manifest) for manifest in manifests)
    assert manifests[0]["metadata"]["labels"]["a"] == "b"


def test_empty_folder_is_refused(tmp_path):
    with pytest.raises(ManifestError, match="contains no manifests"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(b"kind: Secret\nmetadata: {name: s}\n", "'Secret' is not a kind that", id="unknown-kind"),
        pytest.param(b"kind: [Role]\n", r"\['Role'\] is not a kind that", id="list-of-kinds"),
        pytest.param(b"- a\n", "None is not a kind that can be installed", id="list"),
        pytest.param(b"kind: Role\n", "Role has no metadata.name", id="no-name"),
        pytest.param(b"kind: Role\nmetadata: [\n", "line 3, column 1: did not find", id="not-yaml"),
        pytest.param(b"kind: \xff\n", "it is not UTF-8 text", id="not-text"),
    ],
)
def test_file_without_an_installable_object_is_named(tmp_path, text, says):
    (tmp_path / "a.yaml").write_bytes(text)
    with pytest.raises(ManifestError, match=f"a.yaml: {says}"):
        read_folder(tmp_path)


def test_every_kind_has_a_path():
    for kind in MAPPINGS:
        path = path_of({"kind": kind, "metadata": {"name": "n", "namespace": "s"}})
        assert ("/namespaces/s/" in path) is MAPPINGS[kind].namespaced


def test_new_webhook_gets_bundle_and_existing_keeps_its_own():
    wanted = {"webhooks": [{"name": name, "clientConfig": {"url": "u"}} for name in ("old", "new")]}
    known = bundles({"webhooks": [{"name": "old", "clientConfig": {"caBundle": "T0xE"}}]})
    webhooks = with_bundles(wanted, known, b"NEW")["webhooks"]
    assert [webhook["clientConfig"]["caBundle"] for webhook in webhooks] == ["T0xE", "TkVX"]


@pytest.fixture
def serve(tmp_path, request):
    """Return a function that serves a certificate on an address of this machine, and returns the replica."""

    def start(leaf: KeyPair, host="127.0.0.1", port=0) -> Replica:
        folder = tmp_path / f"{host}-{leaf.certificate.serial_number}"
        folder.mkdir()
        (folder / "tls.crt").write_bytes(leaf.certificate_pem())
        (folder / "tls.key").write_bytes(leaf.key_pem())
        replica = Replica(folder, host, port)
        request.addfinalizer(replica.close)
        return replica

    return start


def plain_authority() -> KeyPair:
    """Return a CA without extensions but the basic constraints, as simple tools create it."""
    ours = create_authority(NOW, DAY)
    builder = x509.CertificateBuilder(
        issuer_name=ours.certificate.subject,
        subject_name=ours.certificate.subject,
        public_key=ours.key.public_key(),
        serial_number=1,
        not_valid_before=ours.lifetime.not_before,
        not_valid_after=ours.lifetime.not_after,
    ).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return KeyPair(builder.sign(ours.key, hashes.SHA256()), ours.key)


async def test_webhook_is_verified_like_the_api_server_does(serve, monkeypatch):
    create = ssl.create_default_context

    def as_in_python_3_13(*args, **options):
        context = create(*args, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", as_in_python_3_13)
    authority = plain_authority()
    replica = serve(issue(authority, ["localhost"], now=NOW, validity=DAY))
    address = Address("127.0.0.1", replica.port, "localhost")
    await wait_for_webhook(address, authority.certificate_pem(), seconds=5)


@pytest.mark.parametrize(
    ("other", "is_awaited"),
    [
        pytest.param("new", False, id="renewed"),
        pytest.param("without-name", True, id="not-yet-renewed"),
        pytest.param("of-previous-ca", False, id="to-be-replaced"),
        pytest.param(None, False, id="stopped"),
    ],
)
async def test_every_replica_has_the_name_of_a_new_address(serve, monkeypatch, other, is_awaited):
    authority, previous = create_authority(NOW, DAY), create_authority(NOW, DAY)
    leaves = {
        "new": issue(authority, ["old.example", "new.example"], now=NOW, validity=DAY),
        "without-name": issue(authority, ["old.example"], now=NOW, validity=DAY),
        "of-previous-ca": issue(previous, ["old.example"], now=NOW, validity=DAY),
    }
    port = serve(leaves["new"]).port
    if other:
        serve(leaves[other], "127.0.0.2", port)
    infos = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{number}", port)) for number in (1, 2)]
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *given, **named: infos if host == "replicas" else resolve(host, *given, **named),
    )
    address = Address("replicas", port, "new.example")
    with pytest.raises(InstallError, match="mismatch") if is_awaited else contextlib.nullcontext():
        await wait_for_webhook(address, authority.certificate_pem(), seconds=1)


DEPLOYMENT = "/apis/apps/v1/namespaces/host/deployments/webhook"


def deployment(generation, *, replicas, updated):
    status = {"observedGeneration": 2, "replicas": replicas, "updatedReplicas": updated}
    return answering(200, {"metadata": {"generation": generation}, "status": status})


@pytest.mark.parametrize(
    ("answers", "reads", "warns"),
    [
        pytest.param([deployment(2, replicas=2, updated=2)], 1, False, id="first-installation"),
        pytest.param([refusing(404)], 1, False, id="gone"),
        pytest.param(
            [
                deployment(3, replicas=2, updated=2),
                deployment(2, replicas=3, updated=1),
                deployment(2, replicas=2, updated=2),
            ],
            3,
            False,
            id="upgrade",
        ),
        pytest.param([deployment(2, replicas=3, updated=1)], None, True, id="new-replicas-are-not-ready"),
    ],
)
async def test_registration_waits_for_replicas_of_the_new_version(tmp_path, monkeypatch, answers, reads, warns):
    monkeypatch.setattr("install.registration._POLL_SECONDS", 0.01)
    async with scripted_server() as server, Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api:
        server.says("GET", DEPLOYMENT, *answers)
        with capture_logs() as logs:
            await wait_for_rollout(api, "host", "webhook", seconds=0.3 if warns else 60)
        assert reads is None or len(server.seen("GET")) == reads
    assert [entry["event"] for entry in logs] == ["webhook registered before its rollout has ended"] * warns


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["apply"], "apply needs --objects"),
        (["credentials"], "needs at least one --account"),
        (["register", "--objects", "o"], "register needs --certificate-secret"),
        (["remove", "--objects", "o", "--controller", "c"], "need --host-namespace"),
        (["check", "--account", "no"], "--account"),
        (["check", "--webhook-address", "nowhere"], "--webhook-address"),
    ],
)
def test_invalid_flags_exit_with_code_2(flags, expected, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_flags(flags)
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err


def binding(name, *, uid="u", is_suspended=True):
    return {"metadata": {"name": name, "uid": uid}, "spec": {"suspension": {"scheduling": is_suspended}}}


async def resumed(tmp_path, patches, stored=None):
    """Return the outcomes of bindings by name, with the answers of the API server to their patches and reads."""
    suspended = [SuspendedBinding(RESOURCE_BINDINGS, "ns", name, "u", is_managed=True) for name in patches]
    async with scripted_server() as server, Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api:
        for suspended_binding in suspended:
            server.says("PATCH", suspended_binding.path, *patches[suspended_binding.name])
            server.says("GET", suspended_binding.path, answering(200, stored or binding(suspended_binding.name)))
        return {
            suspended_binding.name: outcome
            async for suspended_binding, outcome in outcomes(api, suspended, resume=True)
        }


@pytest.mark.parametrize("status", [400, 403, 422])
async def test_refused_binding_does_not_prevent_the_removal(tmp_path, status):
    patches = {"a": [refusing(status, "denied by a policy")], "b": [answering(200, {})], "c": [refusing(404)]}
    assert await resumed(tmp_path, patches) == {"a": "refused", "b": "resumed", "c": "gone"}


@pytest.mark.parametrize(
    "stored", [binding("a", uid="other"), binding("a", is_suspended=False)], ids=["uid", "resumed"]
)
async def test_binding_that_others_changed_is_not_resumed(tmp_path, stored):
    assert await resumed(tmp_path, {"a": [refusing(422)]}, stored) == {"a": "changed"}


async def test_resuming_is_repeated_while_the_server_is_overloaded(tmp_path):
    many = {f"b{number}": [refusing(429), refusing(409), answering(200, {})] for number in range(40)}
    assert await resumed(tmp_path, many) == dict.fromkeys(many, "resumed")


async def test_resuming_ends_if_the_api_server_fails_permanently(tmp_path, monkeypatch):
    monkeypatch.setattr("install.removal.Backoff", lambda: Backoff(initial=0.001))
    with pytest.raises(ServerError):
        await resumed(tmp_path, {"a": [refusing(500)]})


CUSTOMIZATIONS = "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations"


def customization(name, target, *operations):
    api_version, _, kind = target.rpartition("/")
    scripts = {operation: {"luaScript": "…"} for operation in operations}
    return {
        "metadata": {"name": name},
        "spec": {"target": {"apiVersion": api_version, "kind": kind}, "customizations": scripts},
    }


async def test_customizations_that_break_rules_are_named(tmp_path):
    items = [
        customization("jobs", "batch.volcano.sh/v1alpha1/Job", "replicaResource", "retention", "statusReflection"),
        customization("ours", "batch.volcano.sh/v1alpha1/Job", "componentResource"),
        customization("kubernetes", "batch/v1/Job", "replicaResource"),
        customization("queues", "scheduling.volcano.sh/v1beta1/Queue", "retention"),
    ]
    async with scripted_server() as server, Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api:
        server.says("GET", CUSTOMIZATIONS, answering(200, {"metadata": {}, "items": items}), refusing(404))
        jobs, queues = await customization_warnings(api)
        assert jobs.startswith("jobs changes replicaResource and statusReflection of Volcano Jobs")
        assert queues.startswith("queues interprets Queues")
        assert await customization_warnings(api) == [], "an older Karmada has none"


def test_ctrl_c_prints_no_traceback(monkeypatch):
    async def interrupt(_settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(install.__main__, "COMMANDS", {"check": interrupt})
    ended = commands.run(install.__main__.main, "check")
    assert (ended.returncode, ended.stderr) == (130, "")
