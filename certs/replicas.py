"""Reads which certificate each replica of the webhook serves, by a TLS handshake without verification."""

import socket
import ssl
from collections.abc import Iterable, Mapping

from cryptography import x509

_TIMEOUT_SECONDS = 5.0


def served_certificates(endpoints: Iterable[str]) -> Mapping[str, x509.Certificate | None]:
    """Return the certificate served at each address of *endpoints* (``HOST:PORT``); ``None`` without an answer."""
    return {address: _leaf(address) for endpoint in endpoints for address in _addresses(endpoint)}


def _addresses(endpoint: str) -> list[str]:
    """Return each address of *endpoint*; an unresolvable name is returned itself and will not answer."""
    host, _, port = endpoint.rpartition(":")
    try:
        infos = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return [endpoint]
    return sorted({f"[{info[4][0]}]:{port}" if ":" in str(info[4][0]) else f"{info[4][0]}:{port}" for info in infos})


def _leaf(address: str) -> x509.Certificate | None:
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    # The certificate is only compared, and may not be covered by any bundle.
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_SECONDS) as plain,
            context.wrap_socket(plain) as connection,
        ):
            certificate = connection.getpeercert(binary_form=True)
    except (OSError, ValueError):
        return None
    return x509.load_der_x509_certificate(certificate) if certificate else None
