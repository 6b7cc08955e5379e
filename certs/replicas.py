"""Which certificate each replica of the webhook serves, asked by a handshake; trusts no answer, compares only."""

import socket
import ssl
from collections.abc import Iterable, Mapping

from cryptography import x509

_TIMEOUT_SECONDS = 5.0


def served_certificates(endpoints: Iterable[str]) -> Mapping[str, x509.Certificate | None]:
    """Return what is served at every address of *places* (``HOST:PORT``); ``None`` where nobody answers."""
    return {address: _leaf(address) for endpoint in endpoints for address in _addresses(endpoint)}


def _addresses(endpoint: str) -> list[str]:
    """Return each address of *place*; of a name that nobody knows the name itself, where nobody will answer."""
    host, _, port = endpoint.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return [endpoint]
    return sorted({f"[{each[4][0]}]:{port}" if ":" in str(each[4][0]) else f"{each[4][0]}:{port}" for each in found})


def _leaf(address: str) -> x509.Certificate | None:
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    # What is served is to be seen, not believed; it may be covered by no bundle at all.
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_SECONDS) as plain,
            context.wrap_socket(plain) as connection,
        ):
            shown = connection.getpeercert(binary_form=True)
    except (OSError, ValueError):
        return None
    return x509.load_der_x509_certificate(shown) if shown else None
