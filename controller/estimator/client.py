"""Client of the estimator of one cluster, which remembers the methods that it does not serve."""

import asyncio
import math
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio
from cryptography import x509
from cryptography.x509.oid import NameOID

from controller.engine.state.estimates import Estimate, Query
from controller.estimator import messages
from controller.estimator.messages import ResponseError
from controller.estimator.options import EstimatorError, EstimatorOptions

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
        valid_names = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    except x509.ExtensionNotFound:
        valid_names = [
            str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        ]
    # A wildcard matches exactly one label.
    return valid_names[0].replace("*", "any", 1) if valid_names else host


#: A method that was not served is retried after this time, because the estimator may have been upgraded.
_RETRY_UNSERVED_SECONDS: Final = 600

Connect = Callable[[], Awaitable[grpc.aio.Channel]]


def new_client(options: EstimatorOptions, cluster: str, clock: Callable[[], float]) -> "Client":
    """Return a client of the estimator of *cluster*."""
    return Client(lambda: connect(options, cluster), timeout=options.timeout_seconds, clock=clock)


class Client:
    """Client of one estimator; it reconnects after a failure."""

    def __init__(self, connect: Connect, *, timeout: float, clock: Callable[[], float]) -> None:
        self._connect = connect
        self._timeout = timeout
        self._clock = clock
        self._channel: grpc.aio.Channel | None = None
        self._answered_at = -math.inf
        """When the server last answered."""
        self._unserved: dict[str, float] = {}
        """Methods that the estimator does not serve, with the time of the last attempt."""

    async def estimate(self, query: Query) -> Estimate:
        """Return what the estimator counts. Raises `EstimatorError`.

        A gang of equal pods is counted by replicas, which is exact and costs the server one pass over its nodes; a gang
        of different pods is counted as a whole.
        """
        if len(query.gang) == 1:
            method, request = messages.MAX_AVAILABLE_REPLICAS, messages.replicas_request(query)
        else:
            method, request = messages.MAX_AVAILABLE_COMPONENT_SETS, messages.component_sets_request(query)
        tried_at = self._unserved.get(method)
        if tried_at is not None and self._clock() < tried_at + _RETRY_UNSERVED_SECONDS:
            return Estimate(query)
        began = self._clock()
        try:
            return Estimate(query, messages.count(await self._call(method, request)))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                self._unserved[method] = self._clock()
                return Estimate(query)
            is_late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            # A connection to a node that has failed looks open for a quarter of an hour, while all queries time out.
            is_silent = is_late and self._answered_at < began
            if is_silent or error.code() is grpc.StatusCode.UNAVAILABLE:
                await self.close()
            raise EstimatorError(f"{error.code().name}: {(error.details() or '')[:300]}", is_timeout=is_late) from error
        except ResponseError as error:
            raise EstimatorError(str(error)) from error
        except (OSError, ValueError) as error:
            raise EstimatorError(f"{type(error).__name__}: {error}") from error

    async def _call(self, method: str, request: bytes) -> bytes:
        if self._channel is None:
            channel = await self._connect()
            if self._channel is None:
                self._channel = channel
            else:
                await channel.close()
        call: Any = self._channel.unary_unary(method)
        try:
            answer: bytes = await call(request, timeout=self._timeout)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise EstimatorError("the connection was closed") from None
        self._answered_at = self._clock()
        return answer

    async def close(self) -> None:
        """Close the connection; the next query opens another one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
