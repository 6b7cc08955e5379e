"""Connects to the estimator of a cluster, with the service name and TLS settings of Karmada's scheduler."""

import asyncio
import socket
import ssl
from typing import Any, Final

import grpc
import grpc.aio
from cryptography import x509
from cryptography.x509.oid import NameOID

from controller.estimator.options import EstimatorOptions

_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 65_536),
    ("grpc.max_reconnect_backoff_ms", 10_000),
)


async def connect(options: EstimatorOptions, cluster: str) -> grpc.aio.Channel:
    """Return a channel to the estimator of *cluster*; certificates are read each time, because they are renewed.

    Raises `OSError` or `ValueError` if the address or a file is invalid.
    """
    host = await _resolve_host(options, cluster)
    target = f"dns:///{host}:{options.port}"
    if options.ca_file is None and not options.insecure_skip_verify:
        return grpc.aio.insecure_channel(target, options=_OPTIONS)
    channel_options: list[tuple[str, Any]] = list(_OPTIONS)
    trusted = await asyncio.to_thread(options.ca_file.read_bytes) if options.ca_file is not None else None
    if options.insecure_skip_verify:
        trusted, name = await _presented_certificate(options, host)
        channel_options.append(("grpc.ssl_target_name_override", name))
    chain, key = await asyncio.to_thread(_client_certificate, options)
    credentials = grpc.ssl_channel_credentials(trusted, key, chain)
    return grpc.aio.secure_channel(target, credentials, options=channel_options)


async def _resolve_host(options: EstimatorOptions, cluster: str) -> str:
    """Return the first host name that can be resolved, the last one if none can."""
    usual, other = options.hosts(cluster)
    try:
        await asyncio.get_running_loop().getaddrinfo(usual, options.port, type=socket.SOCK_STREAM)
    except OSError:
        return other
    return usual


def _client_certificate(options: EstimatorOptions) -> tuple[bytes | None, bytes | None]:
    if options.cert_file is None or options.key_file is None:
        return None, None
    return options.cert_file.read_bytes(), options.key_file.read_bytes()


async def _presented_certificate(options: EstimatorOptions, host: str) -> tuple[bytes, str]:
    """Return the certificate that the server presents, whatever its issuer, and a name in it.

    gRPC cannot skip verification, but it can trust exactly this certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with asyncio.timeout(options.timeout_seconds):
        _, writer = await asyncio.open_connection(host, options.port, ssl=context)
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
    return ssl.DER_cert_to_PEM_cert(shown).encode(), _certificate_name(x509.load_der_x509_certificate(shown), host)


def _certificate_name(certificate: x509.Certificate, host: str) -> str:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    except x509.ExtensionNotFound:
        found = [str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    # A wildcard matches exactly one label.
    return found[0].replace("*", "any", 1) if found else host
