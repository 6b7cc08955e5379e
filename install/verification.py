"""Verifies that all objects exist and that every process is ready, for `helm test`."""

import http.client
import socket
from collections.abc import Iterable, Iterator
from http import HTTPStatus

from controller.kube.client import Api
from controller.kube.errors import NotFound
from install.registration import Address
from install.rest_mapping import Manifest, name_of, path_of

_TIMEOUT_SECONDS = 5.0


async def missing(api: Api, manifests: Iterable[Manifest]) -> list[str]:
    """Return which of *manifests* do not exist in the control plane."""
    return [f"{name_of(item)} does not exist: run helm upgrade" for item in manifests if not await _exists(api, item)]


def unready(address: Address) -> Iterator[str]:
    """Yield which processes behind *address* are not ready, and why; a DNS name may stand for several."""
    try:
        infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        yield f"{address.host}: {error}: check that its pods exist"
        return
    for host in sorted({str(info[4][0]) for info in infos}):
        if reason := _readiness_error(host, address.port):
            yield f"{address.host} at {host}: {reason}"


def _readiness_error(host: str, port: int) -> str | None:
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    finally:
        connection.close()
    return None if answer.status == HTTPStatus.OK else text


async def _exists(api: Api, manifest: Manifest) -> bool:
    try:
        await api.get(path_of(manifest))
    except NotFound:
        return False
    return True
