"""The certificate the webhook serves: read from a folder, read again when it changes, without losing a connection.

Each new connection gets the newest pair that fits together. A missing, half-written, mismatched or expired pair is a
trouble that readiness tells, with its remedy; it heals by itself once the files are right.
"""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog
from cryptography import x509

log = structlog.get_logger(__name__)

CERTIFICATE = "tls.crt"
KEY = "tls.key"
_REMEDY = "run `python -m certs ensure` for this folder, or mount the Secret it keeps"


class CertificateError(Exception):
    """The files hold no certificate and key that fit together; the message names them and the remedy."""


@dataclass(frozen=True, slots=True)
class LoadedCertificate:
    """A certificate as it is offered to new connections, and the files it was made from."""

    context: ssl.SSLContext
    not_before: datetime
    not_after: datetime
    contents: tuple[bytes, ...]
    chain: tuple[x509.Certificate, ...]


class Certificate:
    """What is served now, and why that is not good enough."""

    def __init__(self, directory: Path, client_ca: Path | None = None) -> None:
        self._directory = directory
        self._client_ca = client_ca
        self._served: LoadedCertificate | None = None
        self._load_error: str | None = f"no certificate was read from {directory} yet"
        # Listens for the life of the process; each handshake moves on to the served pair.
        self.context = make_context(requires_client_certificate=client_ca is not None)
        self.context.sni_callback = self._select_context

    @property
    def not_after(self) -> datetime | None:
        """When the served certificate expires; ``None`` before there is one."""
        return self._served.not_after if self._served else None

    @property
    def warning(self) -> str | None:
        """Why what is in the folder now is not served, although something good is."""
        return self._load_error if self._served else None

    @property
    def chain(self) -> tuple[x509.Certificate, ...]:
        """The served certificate, and those between it and its authority."""
        return self._served.chain if self._served else ()

    def refresh(self) -> None:
        """Read the folder again and serve what is new there; keep what is served when that is no good."""
        try:
            contents = (*read_pair(self._directory), *read_client_ca(self._client_ca))
            if self._served is None or contents != self._served.contents:
                self._served = load(self._directory, contents)
                log.info(
                    "certificate loaded", directory=str(self._directory), not_after=self._served.not_after.isoformat()
                )
            self._load_error = None
        except CertificateError as error:
            if str(error) != self._load_error:
                log.warning("certificate not loaded", reason=str(error))
            self._load_error = str(error)

    def not_ready_reason(self, now: datetime) -> str | None:
        """Return why the certificate served at *now* is not good, or ``None``."""
        if self._served is None:
            return self._load_error
        if now < self._served.not_before:
            return (
                f"the certificate is valid from {self._served.not_before.isoformat()} only: correct this host's clock"
            )
        if now >= self._served.not_after:
            return f"the certificate expired at {self._served.not_after.isoformat()}: {_REMEDY}"
        return None

    def _select_context(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        if self._served:
            connection.context = self._served.context


def make_context(*, requires_client_certificate: bool = False) -> ssl.SSLContext:
    """Return a server's context without a certificate: TLS 1.2 or newer, and no compression."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed session would carry on what an authority vouched for that is not trusted any more.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if requires_client_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def read_pair(directory: Path) -> tuple[bytes, bytes]:
    """Return the contents of certificate and key, both of one version of a folder that is replaced as a whole."""
    version = _version(directory)
    try:
        return (version / CERTIFICATE).read_bytes(), (version / KEY).read_bytes()
    except OSError as error:
        raise CertificateError(f"{error.filename}: {error.strerror}: {_REMEDY}") from error


def read_client_ca(client_ca: Path | None) -> tuple[bytes, ...]:
    """Return the contents of the file with the callers' authorities; nothing where callers are not asked."""
    try:
        return (client_ca.read_bytes(),) if client_ca else ()
    except OSError as error:
        remedy = "mount the certificate that the API server's client certificate was signed with"
        raise CertificateError(f"{error.filename}: {error.strerror}: {remedy}") from error


def load(directory: Path, contents: tuple[bytes, ...]) -> LoadedCertificate:
    """Return the pair of *directory*, whose *contents* have just been read, ready to be served.

    What follows certificate and key are the callers' authorities.

    Changes between reading and loading do no harm: what is loaded is a pair or refused, and the next poll sees
    contents other than these.
    """
    version = _version(directory)
    authorities = contents[2:]
    context = make_context(requires_client_certificate=bool(authorities))
    try:
        chain = tuple(x509.load_pem_x509_certificates(contents[0]))
        context.load_cert_chain(version / CERTIFICATE, version / KEY)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise CertificateError(f"{CERTIFICATE} and {KEY} in {directory} are no pair: {error}: {_REMEDY}") from error
    try:
        for pem in authorities:
            context.load_verify_locations(cadata=pem.decode("ascii"))
    except (OSError, ValueError) as error:
        raise CertificateError(f"the file of --client-ca holds no certificates: {error}") from error
    return LoadedCertificate(context, chain[0].not_valid_before_utc, chain[0].not_valid_after_utc, contents, chain)


def utc_now() -> datetime:
    """Return the time by which certificates are judged."""
    return datetime.now(UTC)


def _version(directory: Path) -> Path:
    # A mounted Secret changes by one symbolic link: resolved once, both files are of the same version.
    return (directory / CERTIFICATE).resolve().parent
