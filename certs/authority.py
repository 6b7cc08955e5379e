"""Creates CAs, issues serving certificates, and decides when to renew them; stores nothing and reads no clock.

Keys are ECDSA P-256: small, fast in a handshake, and accepted by every API server.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller.kube.certificates import UNREADABLE, is_issued_by, load_certificates

# The clock of the API server may be slow.
BACKDATED = timedelta(minutes=5)
# Minimal key usages: P-256 keys only sign, and a CA signs only certificates.
_CA_USAGE = {"key_cert_sign", "crl_sign"}
_LEAF_USAGE = {"digital_signature"}
_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Validity of an issued certificate, in UTC."""

    not_before: datetime
    not_after: datetime

    def renewal_time(self) -> datetime:
        """Return when two thirds of the lifetime have passed, which leaves time for retries."""
        return self.not_before + (self.not_after - self.not_before) * 2 / 3


def reason_to_renew(leaf: Lifetime, issuer: Lifetime, now: datetime) -> str | None:
    """Return why *leaf* must be replaced at *now*, or ``None`` while it is valid long enough.

    A leaf is replaced after two thirds of its lifetime, and at once when it would outlive its issuer, so that every
    served certificate has a valid chain. A CA is its own issuer.
    """
    if leaf.not_after > issuer.not_after:
        return "it outlives its issuer"
    if now < leaf.not_before:
        return "it is not valid yet"
    if now >= leaf.renewal_time():
        return "two thirds of its lifetime have passed"
    return None


def reason_to_reissue(names: frozenset[str], required: frozenset[str]) -> str | None:
    """Return why a leaf for *names* does not cover the *required* names, or ``None``; extra names are harmless."""
    if missing := sorted(required - names):
        return f"it does not cover {', '.join(missing)}"
    return None


class AuthorityError(Exception):
    """A certificate or key cannot be used; the message says which and why."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def lifetime(self) -> Lifetime:
        """Validity of the certificate."""
        return lifetime(self.certificate)

    @property
    def names(self) -> frozenset[str]:
        """DNS names and addresses of the certificate."""
        return names(self.certificate)

    def certificate_pem(self) -> bytes:
        """Return the certificate as PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    def key_pem(self) -> bytes:
        """Return the unencrypted key as PEM; the store must protect it."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def has_issued(self, leaf: x509.Certificate) -> bool:
        """Return whether this CA signed *leaf*."""
        return is_issued_by(self.certificate, leaf)


def create_authority(now: datetime, validity: timedelta) -> KeyPair:
    """Return a new CA that is valid for *validity* from *now*."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # Each CA has its own name, since verifiers confuse CAs of the same name in a bundle.
    name = _name(f"volcano-global CA {serial:x}"[:40])
    certificate = (
        _builder(name, key.public_key(), Lifetime(now - BACKDATED, now + validity))
        .issuer_name(name)
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(_CA_USAGE), critical=True)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate, key)


def issue(authority: KeyPair, names: Iterable[str], *, now: datetime, validity: timedelta) -> KeyPair:
    """Return a serving certificate for *names* (DNS names, addresses), valid for *validity* but not beyond its CA."""
    not_after = min(now + validity, authority.lifetime.not_after)
    if not_after <= now:
        raise AuthorityError(f"the CA expired at {authority.lifetime.not_after:%Y-%m-%d %H:%M} UTC: renew it first")
    not_before = max(now - BACKDATED, authority.lifetime.not_before)
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate.public_key()
    certificate = (
        _builder(_name("volcano-global-webhook"), key.public_key(), Lifetime(not_before, not_after))
        .issuer_name(authority.certificate.subject)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(_LEAF_USAGE), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(_elliptic(issuer)), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return KeyPair(certificate, key)


def load(certificate_pem: bytes, key_pem: bytes) -> KeyPair:
    """Return the stored certificate and key; of a chain the first certificate is used."""
    try:
        certificate = load_certificates(certificate_pem)[0]
        key = load_pem_private_key(key_pem, password=None)
        public_key, *_ = certificate.public_key(), certificate.subject, certificate.extensions
    except UNREADABLE as error:
        raise AuthorityError(f"the stored certificate or key cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise AuthorityError("the stored key is not an elliptic curve key")
    if _raw(key.public_key()) != _raw(_elliptic(public_key)):
        raise AuthorityError("the stored certificate and key do not match")
    return KeyPair(certificate, key)


def load_bundle(bundle_pem: bytes) -> list[x509.Certificate]:
    """Return the certificates of a bundle."""
    try:
        return load_certificates(bundle_pem)
    except ValueError as error:
        raise AuthorityError(f"the stored bundle cannot be read: {error}") from error


def names(certificate: x509.Certificate) -> frozenset[str]:
    """Return the DNS names and addresses of *certificate*."""
    try:
        alternative_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    addresses = (str(address) for address in alternative_names.get_values_for_type(x509.IPAddress))
    return frozenset((*alternative_names.get_values_for_type(x509.DNSName), *addresses))


def canonical_name(name: str) -> str:
    """Return *name* as `names` returns it: an address in its short form."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def lifetime(certificate: x509.Certificate) -> Lifetime:
    """Return the validity of *certificate*."""
    return Lifetime(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def _builder(name: x509.Name, key: ec.EllipticCurvePublicKey, validity: Lifetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key)
        .not_valid_before(validity.not_before)
        .not_valid_after(validity.not_after)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(granted: set[str]) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in granted for usage in _USAGES})


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _elliptic(key: object) -> ec.EllipticCurvePublicKey:
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise AuthorityError("the stored certificate has no elliptic curve key")
    return key


def _raw(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
