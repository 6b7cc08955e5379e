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
class Served:
    """A certificate as it is offered to new connections, and the files it was made from."""

    context: ssl.SSLContext
    begins: datetime
    ends: datetime
    contents: tuple[bytes, bytes]


class Certificate:
    """What is served now, and why that is not good enough."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._served: Served | None = None
        self._trouble: str | None = f"no certificate was read from {directory} yet"
        # Listens for the life of the process; each handshake moves on to the served pair.
        self.listening = make_context()
        self.listening.sni_callback = self._offer

    @property
    def ends(self) -> datetime | None:
        """When the served certificate expires; ``None`` before there is one."""
        return self._served.ends if self._served else None

    def refresh(self) -> None:
        """Read the folder again and serve what is new there; keep what is served when that is no good."""
        try:
            contents = read_pair(self._directory)
            if self._served is None or contents != self._served.contents:
                self._served = load(self._directory, contents)
                log.info("certificate loaded", directory=str(self._directory), ends=self._served.ends.isoformat())
            self._trouble = None
        except CertificateError as error:
            if str(error) != self._trouble:
                log.warning("certificate not loaded", reason=str(error))
            self._trouble = str(error)

    def trouble(self, now: datetime) -> str | None:
        """Return why the certificate served at *now* is not good, or ``None``."""
        if self._served is None:
            return self._trouble
        if now < self._served.begins:
            return f"the certificate is valid from {self._served.begins.isoformat()} only: correct this host's clock"
        if now >= self._served.ends:
            return f"the certificate expired at {self._served.ends.isoformat()}: {_REMEDY}"
        return None

    def _offer(self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        if self._served:
            connection.context = self._served.context


def make_context() -> ssl.SSLContext:
    """Return a server's context without a certificate: TLS 1.2 or newer, and no compression."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def read_pair(directory: Path) -> tuple[bytes, bytes]:
    """Return the contents of certificate and key, both of one version of a folder that is replaced as a whole."""
    version = _version(directory)
    try:
        return (version / CERTIFICATE).read_bytes(), (version / KEY).read_bytes()
    except OSError as error:
        raise CertificateError(f"{error.filename}: {error.strerror}: {_REMEDY}") from error


def load(directory: Path, contents: tuple[bytes, bytes]) -> Served:
    """Return the pair of *directory*, whose *contents* have just been read, ready to be served.

    Changes between reading and loading do no harm: what is loaded is a pair or refused, and the next poll sees
    contents other than these.
    """
    version = _version(directory)
    context = make_context()
    try:
        leaf = x509.load_pem_x509_certificates(contents[0])[0]
        context.load_cert_chain(version / CERTIFICATE, version / KEY)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise CertificateError(f"{CERTIFICATE} and {KEY} in {directory} are no pair: {error}: {_REMEDY}") from error
    return Served(context, leaf.not_valid_before_utc, leaf.not_valid_after_utc, contents)


def utc_now() -> datetime:
    """Return the time by which certificates are judged."""
    return datetime.now(UTC)


def _version(directory: Path) -> Path:
    # A mounted Secret changes by one symbolic link: resolved once, both files are of the same version.
    return (directory / CERTIFICATE).resolve().parent
