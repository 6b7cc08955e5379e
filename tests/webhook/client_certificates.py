"""Issues client certificates, and configures an API server to present one to webhooks."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


class ClientAuthority:
    """A CA for client certificates."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("callers")
        self._certificate = _builder(self._name, self._name, self._key, ends=DAY, is_ca=True).sign(
            self._key, hashes.SHA256()
        )
        self.file = folder / "ca.crt"
        self.file.write_bytes(_pem(self._certificate))

    def issue(self, name: str, *, ends: timedelta = DAY, usage=ExtendedKeyUsageOID.CLIENT_AUTH) -> tuple[Path, Path]:
        """Return the files of a new certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_name(name), self._name, key, ends=ends, is_ca=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        files = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        files[0].write_bytes(_pem(certificate))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files


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


def _builder(subject, issuer, key, *, ends: timedelta, is_ca: bool) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
