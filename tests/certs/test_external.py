"""Tests external certificates, in Secrets as cert-manager writes them: only their CA is published."""

import base64
import ipaddress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from certs.store import AUTHORITY, SERVING
from localup.apply import apply
from tests.certs.handshakes import handshake
from tests.certs.installed import SECRETS, bundles, run
from tests.certs.test_reconciler import reconciler as directory_reconciler
from tests.webhook.installation import registration

NAME = "volcano-global-webhook"
SECRET = f"{SECRETS}/{NAME}"
NOW = datetime.now(UTC)
#: Of a CA: digital signatures, certificates, revocation lists.
USAGES = (True, False, False, False, False, True, True, False, False)


class Issuer:
    """A CA like cert-manager's: RSA keys, and leaf keys in PKCS 1 form."""

    def __init__(self, name: str, above: "Issuer | None" = None) -> None:
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = rsa.generate_private_key(65537, 2048)
        self.above = above
        signer = above or self
        extensions = x509.BasicConstraints(ca=True, path_length=None), x509.KeyUsage(*USAGES)
        self.certificate = signer.signed(self.name, self.key, *extensions, days=3650)

    def signed(self, name, key, *extensions, days):
        """Return a certificate signed by this CA."""
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - timedelta(days=max(1 - days, 0), minutes=5))
            .not_valid_after(NOW + timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=True)
        return builder.sign(self.key, hashes.SHA256())

    def issue(self, *, days=90) -> dict[str, bytes]:
        """Return the files of a serving certificate with its intermediate certificates."""
        key = rsa.generate_private_key(65537, 2048)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        leaf = self.signed(x509.Name([]), key, x509.SubjectAlternativeName(names), days=days)
        intermediates, root = [], self
        while root.above:
            intermediates, root = [*intermediates, root.certificate], root.above
        return {
            "ca.crt": root.certificate.public_bytes(Encoding.PEM),
            "tls.crt": b"".join(item.public_bytes(Encoding.PEM) for item in (leaf, *intermediates)),
            "tls.key": key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
        }


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


@pytest.mark.parametrize("levels", [1, 2], ids=["root", "root-and-intermediate"])
def test_published_bundle_covers_an_external_certificate(emptied, store, tmp_path, levels):
    issuer = Issuer("root")
    for number in range(1, levels):
        issuer = Issuer(f"intermediate-{number}", above=issuer)
    files = issuer.issue()
    store_secret(emptied, files)
    before = emptied.admin.get(SECRET)
    assert run(emptied, "ensure", "--external").returncode == 0
    (bundle,) = set(bundles(emptied))
    assert bundle == files["ca.crt"]
    handshake(files["tls.crt"], files["tls.key"], bundle=bundle, name="localhost", folder=tmp_path)
    # It creates no CA and does not change the external Secret.
    assert store.read(AUTHORITY) is None
    assert emptied.admin.get(SECRET) == before
    again = run(emptied, "ensure", "--external")
    assert (again.returncode, again.stdout) == (0, "")
    status = run(emptied, "status", "--external").stdout.splitlines()
    assert status[0].startswith("serving: external, valid until ")
    assert status[1].endswith("1 CA, covers the serving certificate")


def test_new_external_ca_is_published_next_to_the_old_one(emptied, replica, tmp_path):
    first, second = Issuer("first").issue(), Issuer("second").issue()
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


def test_status_names_an_expired_external_certificate(emptied):
    store_secret(emptied, Issuer("root").issue(days=0))
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
