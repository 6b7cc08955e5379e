"""Issues certificates of a CA for tests."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from localup.credentials import issue

DAY = timedelta(days=1)
_SIGNING = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def write_certificate(folder: Path) -> None:
    """Write a new CA and a certificate of localhost into *folder*, as a process serves it."""
    folder.mkdir(exist_ok=True)
    credentials = issue(folder)
    shutil.copy(folder / "apiserver.crt", folder / "tls.crt")
    shutil.copy(folder / "apiserver.key", folder / "tls.key")
    (folder / "ca.crt").write_text(credentials.ca)


class Authority:
    """A CA with its certificate in `file`, by default for certificates of clients."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority")
        self._certificate = (
            _builder(self._name, self._name, self._key, ends=DAY, is_ca=True)
            .add_extension(_SIGNING, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / "ca.crt"
        self.file.write_bytes(_pem(self._certificate))

    def issue(self, name: str, *, ends: timedelta = DAY, usage=ExtendedKeyUsageOID.CLIENT_AUTH) -> tuple[Path, Path]:
        """Return the files of a new certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_name(name), self._name, key, ends=ends, is_ca=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
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
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
