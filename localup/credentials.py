"""Keys, certificates and tokens of a temporary control plane.

ECDSA keys are used because generating RSA keys takes longer than starting the API server.
"""

import base64
import datetime as dt
import ipaddress
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from certs.authority import KeyPair, create_authority

_VALIDITY: Final = dt.timedelta(days=30)
#: Host name under which the API server calls Karmada's aggregated API server.
AGGREGATED: Final = "karmada-aggregated-apiserver.karmada-system.svc"
_FRONT_PROXY: Final = "front-proxy-client"


@dataclass(frozen=True, slots=True)
class Identity:
    """User and groups of a client."""

    user: str
    groups: tuple[str, ...] = ()


# Only the bootstrap client is in system:masters; all others have dedicated roles.
IDENTITIES: Final[Mapping[str, Identity]] = {
    "admin": Identity("admin", ("system:masters",)),
    "kube-controller-manager": Identity("system:kube-controller-manager"),
    "volcano-global-controller": Identity("volcano-global-controller"),
    "volcano-global-hyperjobs": Identity("volcano-global-hyperjobs"),
    "volcano-global-webhook": Identity("volcano-global-webhook"),
    "volcano-global-certs": Identity("volcano-global-certs"),
    "volcano-global-console": Identity("volcano-global-console"),
    "karmada": Identity("karmada"),
    "tenant": Identity("tenant"),
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of an API server and its clients."""

    folder: Path
    ca: str
    tokens: Mapping[str, str]

    @property
    def flags(self) -> list[str]:
        """API server flags for these credentials."""
        files = {
            "tls-cert-file": "apiserver.crt",
            "tls-private-key-file": "apiserver.key",
            "service-account-key-file": "accounts.crt",
            "service-account-signing-key-file": "accounts.key",
            "token-auth-file": "tokens.csv",
            # Authentication at aggregated API servers.
            "proxy-client-cert-file": "front-proxy.crt",
            "proxy-client-key-file": "front-proxy.key",
            "requestheader-client-ca-file": "ca.crt",
        }
        return [
            *(f"--{flag}={self.folder / name}" for flag, name in files.items()),
            f"--requestheader-allowed-names={_FRONT_PROXY}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        ]


def issue(folder: Path) -> Credentials:
    """Write new credentials for all identities into *folder*."""
    tokens = {name: secrets.token_urlsafe(24) for name in IDENTITIES}
    _write(folder / "tokens.csv", "".join(map(_token_line, tokens.items())))
    ca = create_authority(dt.datetime.now(dt.UTC), _VALIDITY)
    _write(folder / "ca.crt", ca.certificate_pem().decode())
    for file, name in (("apiserver", "kube-apiserver"), ("front-proxy", _FRONT_PROXY), ("accounts", "accounts")):
        issued = _certificate(name, ca)
        _write(folder / f"{file}.crt", issued.certificate_pem().decode())
        _write(folder / f"{file}.key", issued.key_pem().decode())
    return Credentials(folder, ca=ca.certificate_pem().decode(), tokens=tokens)


def write_kubeconfig(credentials: Credentials, identity: str, *, url: str) -> Path:
    """Write the kubeconfig of *identity*, with one cluster, user and context and mode 0600, and return its path."""
    if identity not in credentials.tokens:
        raise KeyError(f"unknown identity {identity!r}; known: {', '.join(sorted(credentials.tokens))}")
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(credentials.ca.encode()).decode()}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "localup", "cluster": cluster}],
        "users": [{"name": identity, "user": {"token": credentials.tokens[identity]}}],
        "contexts": [{"name": identity, "context": {"cluster": "localup", "user": identity}}],
        "current-context": identity,
    }
    path = credentials.folder / f"{identity}.kubeconfig"
    _write(path, yaml.safe_dump(content, sort_keys=False))
    return path


def _token_line(item: tuple[str, str]) -> str:
    identity = IDENTITIES[item[0]]
    groups = f',"{",".join(identity.groups)}"' if identity.groups else ""
    return f"{item[1]},{identity.user},{identity.user}{groups}\n"


def _certificate(name: str, ca: KeyPair) -> KeyPair:
    """Return a certificate for servers on this machine and for clients.

    Clients in Python 3.13 and newer require its key identifier.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    here = [x509.DNSName("localhost"), x509.DNSName(AGGREGATED), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(ca.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ca.lifetime.not_before)
        .not_valid_after(ca.lifetime.not_after)
        .add_extension(x509.SubjectAlternativeName(here), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key()), critical=False)
        .sign(ca.key, hashes.SHA256())
    )
    return KeyPair(certificate, key)


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
