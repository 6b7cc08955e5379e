"""Follows the serving certificate in a folder.

Changed files are reloaded without closing connections; each new connection gets the newest valid pair. A missing,
partly written, mismatched or expired pair makes the server not ready, with a remedy, until the files are correct again.
A served pair that callers can verify is not replaced by one that they cannot verify yet.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import structlog
from cryptography import x509

from controller.kube.certificates import load_certificates

log = structlog.get_logger(__name__)

CERTIFICATE = "tls.crt"
KEY = "tls.key"
_REMEDY = "run `python -m certs ensure` for this folder, or mount the Secret that it writes"

#: A certificate, followed by its intermediate certificates.
Chain = tuple[x509.Certificate, ...]


class CertificateError(Exception):
    """The files hold no matching certificate and key; the message names them and the remedy."""


@dataclass(frozen=True, slots=True)
class LoadedCertificate:
    """A certificate as it is served to new connections, with the contents of its files."""

    context: ssl.SSLContext
    not_before: datetime
    not_after: datetime
    contents: tuple[bytes, ...]
    chain: Chain

    def invalid_reason(self, now: datetime) -> str | None:
        """Return why the certificate is not valid at *now*, or ``None``."""
        if now < self.not_before:
            return f"the certificate is not valid before {self.not_before.isoformat()}: correct the host's clock"
        if now >= self.not_after:
            return f"the certificate expired at {self.not_after.isoformat()}: {_REMEDY}"
        return None


class Certificate:
    """The certificate that is served, and why it is not valid.

    *reason_to_keep* returns why callers still need the served chain, its first argument, and not the new one.
    """

    def __init__(
        self,
        directory: Path,
        client_ca: Path | None = None,
        *,
        reason_to_keep: Callable[[Chain, Chain], str | None] = lambda _, __: None,
    ) -> None:
        self._directory = directory
        self._client_ca = client_ca
        self._reason_to_keep = reason_to_keep
        self._served: LoadedCertificate | None = None
        self._load_error: str | None = f"no certificate was read from {directory} yet"
        # The listening context never changes; each handshake switches to the context of the newest pair.
        self.context = make_context(requires_client_certificate=client_ca is not None)
        self.context.sni_callback = self._select_context

    @classmethod
    def read(cls, directory: Path, client_ca: Path | None = None) -> "Certificate":
        """Return the certificate in *directory*; raise `CertificateError` if there is none that can be served."""
        certificate = cls(directory, client_ca)
        certificate.refresh()
        if certificate.not_after is None:
            raise CertificateError(certificate.not_ready_reason(utc_now()))
        return certificate

    @property
    def not_after(self) -> datetime | None:
        """When the served certificate expires; ``None`` before the first one."""
        return self._served.not_after if self._served else None

    @property
    def warning(self) -> str | None:
        """Why the files in the folder were not loaded, while an earlier certificate is served."""
        return self._load_error if self._served else None

    @property
    def chain(self) -> Chain:
        """The served certificate and its intermediate certificates."""
        return self._served.chain if self._served else ()

    def refresh(self) -> None:
        """Load the folder again if it has changed; on an error the served certificate stays."""
        try:
            contents = (*read_pair(self._directory), *read_client_ca(self._client_ca))
            if self._served is None or contents != self._served.contents:
                loaded = load(self._directory, contents)
                self._check_replacement(loaded, utc_now())
                self._served = loaded
                log.info(
                    "certificate loaded", directory=str(self._directory), not_after=self._served.not_after.isoformat()
                )
            self._load_error = None
        except CertificateError as error:
            if str(error) != self._load_error:
                log.warning("certificate load failed", reason=str(error))
            self._load_error = str(error)

    async def follow(self, *, seconds: float) -> NoReturn:
        """Load the folder again every *seconds*, until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            self.refresh()

    def not_ready_reason(self, now: datetime) -> str | None:
        """Return why the certificate served at *now* is not valid, or ``None``."""
        if self._served is None:
            return self._load_error
        return self._served.invalid_reason(now)

    def _check_replacement(self, new: LoadedCertificate, now: datetime) -> None:
        """Raise `CertificateError` if callers can verify the served certificate at *now*, but not *new*."""
        served = self._served
        if served is None or served.invalid_reason(now):
            return
        if reason := new.invalid_reason(now) or self._reason_to_keep(served.chain, new.chain):
            raise CertificateError(f"the new certificate in {self._directory} is not served yet: {reason}")

    def _select_context(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        if self._served:
            connection.context = self._served.context


def make_context(*, requires_client_certificate: bool = False) -> ssl.SSLContext:
    """Return a server context without a certificate: TLS 1.2 or newer, no session tickets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed session would skip the verification against a client CA that has changed since.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if requires_client_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def read_pair(directory: Path) -> tuple[bytes, bytes]:
    """Return the contents of certificate and key, both from the same version of *directory*."""
    try:
        version = _version(directory)
        return (version / CERTIFICATE).read_bytes(), (version / KEY).read_bytes()
    except OSError as error:
        raise CertificateError(f"{error.filename}: {error.strerror}: {_REMEDY}") from error
    except RuntimeError as error:
        raise CertificateError(f"{error}: {_REMEDY}") from error


def read_client_ca(client_ca: Path | None) -> tuple[bytes, ...]:
    """Return the contents of the client CA file; nothing if callers need no certificate."""
    try:
        return (client_ca.read_bytes(),) if client_ca else ()
    except OSError as error:
        remedy = "mount the CA that signed the client certificate of the API server"
        raise CertificateError(f"{error.filename}: {error.strerror}: {remedy}") from error


def load(directory: Path, contents: tuple[bytes, ...]) -> LoadedCertificate:
    """Return the pair of *directory*, just read as *contents*, ready to be served.

    The contents after certificate and key are client CAs. Changes between reading and loading are harmless: what is
    loaded matches or is refused, and the next poll finds other contents.
    """
    client_cas = contents[2:]
    context = make_context(requires_client_certificate=bool(client_cas))
    try:
        version, chain = _version(directory), tuple(load_certificates(contents[0]))
        context.load_cert_chain(version / CERTIFICATE, version / KEY)
    except (OSError, RuntimeError, ValueError) as error:  # ssl.SSLError is an OSError
        raise CertificateError(f"{CERTIFICATE} and {KEY} in {directory} do not match: {error}: {_REMEDY}") from error
    try:
        for pem in client_cas:
            context.load_verify_locations(cadata=pem.decode("ascii"))
    except (OSError, ValueError) as error:
        raise CertificateError(f"the file of --client-ca holds no certificates: {error}") from error
    return LoadedCertificate(context, chain[0].not_valid_before_utc, chain[0].not_valid_after_utc, contents, chain)


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def _version(directory: Path) -> Path:
    # A mounted Secret changes by one symbolic link: resolved once, both files have the same version.
    return (directory / CERTIFICATE).resolve().parent
