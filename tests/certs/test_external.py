"""Tests external certificates, in Secrets as cert-manager writes them: only their CA is published."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import create_authority, issue
from certs.store import AUTHORITY, SERVING
from controller.kube.certificates import is_trusted
from localup.apply import apply
from tests.certs.installed import SECRETS, bundles, run
from tests.certs.test_reconciler import reconciler as directory_reconciler
from tests.webhook.installation import registration

NAME = "volcano-global-webhook"
SECRET = f"{SECRETS}/{NAME}"
NOW, DAY = datetime.now(UTC), timedelta(days=1)


def issued(*, intermediates: int = 0, at: datetime = NOW) -> dict[str, bytes]:
    """Return the files of a certificate that is valid for a day, with those of its *intermediates*."""
    issuers = [create_authority(at, 3650 * DAY)]
    for number in range(intermediates):
        issuers.append(issue(issuers[-1], [f"intermediate-{number}"], now=at, validity=365 * DAY))
    leaf = issue(issuers[-1], ["localhost"], now=at, validity=DAY)
    chain = [leaf, *reversed(issuers[1:])]
    certificates = b"".join(pair.certificate_pem() for pair in chain)
    return {"ca.crt": issuers[0].certificate_pem(), "tls.crt": certificates, "tls.key": leaf.key_pem()}


def self_signed() -> dict[str, bytes]:
    """Return the files of a self-signed certificate with an RSA key, the default of cert-manager."""
    key, name = rsa.generate_private_key(65537, 2048), x509.Name([])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1)
    builder = builder.public_key(key.public_key()).not_valid_before(NOW - DAY).not_valid_after(NOW + DAY)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return {"ca.crt": certificate, "tls.crt": certificate, "tls.key": b"not read"}


def store_secret(plane, files: dict[str, bytes]) -> None:
    """Create the Secret of a Certificate of cert-manager."""
    metadata = {"name": NAME, "annotations": {"cert-manager.io/certificate-name": NAME}}
    data = {name: base64.b64encode(contents).decode() for name, contents in files.items()}
    plane.admin.delete(SECRETS)
    plane.admin.create(SECRETS, {"type": "kubernetes.io/tls", "metadata": metadata, "data": data})


@pytest.fixture
def emptied(plane, store):
    """Return the control plane without Secrets and published bundles."""
    assert store.read(SERVING) is None
    configurations = registration("https://127.0.0.1:9")
    for configuration in configurations:
        for webhook in configuration["webhooks"]:
            webhook["clientConfig"]["caBundle"] = ""
    apply(plane.admin, configurations)
    return plane


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(issued(), id="root"),
        pytest.param(issued(intermediates=2), id="intermediates"),
        pytest.param(self_signed(), id="self-signed"),
    ],
)
def test_published_bundle_covers_an_external_certificate(emptied, store, files):
    store_secret(emptied, files)
    before = emptied.admin.get(SECRET)
    assert run(emptied, "ensure", "--external").returncode == 0
    (bundle,) = set(bundles(emptied))
    assert bundle == files["ca.crt"]
    chain, other = (x509.load_pem_x509_certificates(text) for text in (files["tls.crt"], issued()["ca.crt"]))
    assert is_trusted(chain, x509.load_pem_x509_certificates(bundle))
    assert not is_trusted(chain, other)
    # It creates no CA and does not change the external Secret.
    assert store.read(AUTHORITY) is None
    assert emptied.admin.get(SECRET) == before
    again = run(emptied, "ensure", "--external")
    assert (again.returncode, again.stdout) == (0, "")
    status = run(emptied, "status", "--external").stdout.splitlines()
    assert status[0].startswith("serving: external, valid until ")
    assert status[1].endswith("1 CA, covers the serving certificate")


def test_new_external_ca_is_published_next_to_the_old_one(emptied, replica, tmp_path):
    first, second = issued(), issued()
    store_secret(emptied, first)
    assert run(emptied, "ensure", "--external").returncode == 0
    directory_reconciler(tmp_path / "other").run()
    outdated = replica(tmp_path / "other" / "serving")
    store_secret(emptied, second)
    assert run(emptied, "ensure", "--external", "--replica", outdated.place).returncode == 0
    assert set(bundles(emptied)) == {second["ca.crt"] + first["ca.crt"]}
    for name in second:
        (outdated.folder / name).unlink()
        (outdated.folder / name).write_bytes(second[name])
    outdated.load()
    assert run(emptied, "ensure", "--external", "--replica", outdated.place).returncode == 0
    assert set(bundles(emptied)) == {second["ca.crt"]}


def test_external_ca_without_its_certificate_removes_no_old_one(emptied, replica, tmp_path):
    """Whoever manages the Secret may write the new CA first, while the certificate is still that of the old one."""
    first, second = issued(), issued()
    for name, contents in first.items():
        (tmp_path / name).write_bytes(contents)
    served = replica(tmp_path)
    store_secret(emptied, first)
    assert run(emptied, "ensure", "--external", "--replica", served.place).returncode == 0
    store_secret(emptied, first | {"ca.crt": second["ca.crt"]})
    assert run(emptied, "ensure", "--external", "--replica", served.place).returncode == 0
    assert set(bundles(emptied)) == {second["ca.crt"] + first["ca.crt"]}


def test_status_names_an_expired_external_certificate(emptied):
    store_secret(emptied, issued(at=NOW - 2 * DAY))
    status = run(emptied, "status", "--external").stdout.splitlines()
    assert status[0].endswith("; it has expired: check its issuer")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(None, "there is no certificate yet: check its issuer", id="nothing"),
        pytest.param({"tls.crt": b"", "tls.key": b"k"}, "there is no certificate yet: check its issuer", id="key-only"),
        pytest.param(
            {"tls.crt": b"c", "tls.key": b"k"},
            "the Secret of the certificate has no ca.crt: use an issuer that provides its CA",
            id="no-ca",
        ),
        pytest.param(
            {"tls.crt": b"c", "tls.key": b"k", "ca.crt": b"x"}, "the stored bundle cannot be read: ", id="garbage"
        ),
    ],
)
def test_unpublishable_external_secret_is_an_error(emptied, files, expected):
    if files:
        store_secret(emptied, files)
    result = run(emptied, "ensure", "--external")
    assert result.returncode == 1
    assert result.stderr.startswith(f"certs: {expected}")
    assert set(bundles(emptied)) == {b""}
    status = run(emptied, "status", "--external").stdout.splitlines()
    assert status[0] == "serving: external, does not exist yet: check its issuer"
