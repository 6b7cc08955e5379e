"""Tests client authentication (TA1): callers without the right certificate reach no handler."""

import ssl
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from cryptography.x509.oid import ExtendedKeyUsageOID

from localup import ports
from localup.api import ApiError
from localup.apply import wait_until
from tests.authority import Authority
from tests.webhook.conftest import ensure_certificates, exchange, serve, trust_context
from tests.webhook.installation import BINDINGS, ensure, fresh, is_suspended, register
from tests.webhook.process import WebhookProcess
from tests.webhook.reviews import GOOD, HEAD, job_binding

API_SERVER = "kube-apiserver"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("callers"))


@pytest.fixture
async def guarded(certificates, authority):
    """Yield a webhook that only the API server may call."""
    async with serve(certificates, client_ca=authority.file, client_names=(API_SERVER,)) as running:
        yield running


async def call(running, pair=None) -> bytes:
    """Send a valid review over its own connection with the certificate *pair*, and return the answer."""
    context = trust_context(running.folder)
    if pair:
        context.load_cert_chain(*pair)
    return await exchange(
        running.port, context, HEAD, b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(GOOD), GOOD
    )


async def is_refused(running, pair) -> bool:
    try:
        return await call(running, pair) == b""
    except (ssl.SSLError, ConnectionError):
        return True


async def test_api_server_certificate_is_accepted(guarded, authority):
    assert (await call(guarded, authority.issue(API_SERVER))).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(lambda _own, _folder: None, id="none"),
        pytest.param(lambda _own, folder: Authority(folder).issue(API_SERVER), id="another-authority"),
        pytest.param(lambda own, _folder: own.issue("tenant"), id="another-name"),
        pytest.param(lambda own, _folder: own.issue(API_SERVER, ends=-timedelta(hours=1)), id="expired"),
        pytest.param(lambda own, _folder: own.issue(API_SERVER, usage=ExtendedKeyUsageOID.SERVER_AUTH), id="a-servers"),
    ],
)
async def test_other_callers_reach_no_handler(guarded, authority, tmp_path, pair):
    assert await is_refused(guarded, pair(authority, tmp_path / "other"))
    assert b"volcano_global_webhook_requests_total{" not in guarded.app.metrics.render()


async def test_new_client_ca_is_loaded_without_a_restart(guarded, authority, tmp_path):
    other = Authority(tmp_path / "other")
    before = authority.file.read_bytes()
    try:
        authority.file.write_bytes(other.file.read_bytes())
        guarded.certificate.refresh()
        authority.file.write_bytes(b"nothing")
        guarded.certificate.refresh()  # an invalid file leaves the last one in force
    finally:
        authority.file.write_bytes(before)
    assert (await call(guarded, other.issue(API_SERVER))).startswith(b"HTTP/1.1 200 ")
    assert await is_refused(guarded, authority.issue(API_SERVER))


def admission_configuration(folder: Path, port: int, pair: tuple[Path, Path]) -> Path:
    """Write the admission configuration with which an API server presents *pair* to webhooks on *port*."""
    user = {"name": f"127.0.0.1:{port}", "user": {"client-certificate": str(pair[0]), "client-key": str(pair[1])}}
    kubeconfig = folder / "webhooks.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "users": [user]}))
    version = "apiserver.config.k8s.io/v1"
    webhooks = {"apiVersion": version, "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": str(kubeconfig)}
    plugins = [
        {"name": name, "configuration": webhooks} for name in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    ]
    file = folder / "admission.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": version, "kind": "AdmissionConfiguration", "plugins": plugins}))
    return file


def test_real_api_server_authenticates(fresh_control_plane, authority, tmp_path):
    ensure_certificates(tmp_path)
    port = ports.claim()
    configuration = admission_configuration(tmp_path, port, authority.issue(API_SERVER))
    flags = ("--port", str(port), "--drain-seconds", "0", "--client-ca", str(authority.file))
    plane = fresh_control_plane(controllers=False, flags=[f"--admission-control-config-file={configuration}"])
    plane.admin.create("/api/v1/namespaces", {"metadata": {"name": "ml"}})
    register(plane, port)
    ensure(plane, tmp_path)
    with plane.client("karmada") as karmada:
        with WebhookProcess(tmp_path / "serving", *flags, "--client-names", API_SERVER):
            wait_until(lambda: is_suspended(karmada), "webhook at work")
        with WebhookProcess(tmp_path / "serving", *flags, "--client-names", "another-name") as strict:
            with pytest.raises(ApiError, match="failed calling webhook"):
                karmada.create(f"{BINDINGS}?dryRun=All", fresh(job_binding()))
            assert strict.wait_for("caller refused")["names"] == [API_SERVER]
    ports.release(port)
