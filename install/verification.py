"""Is what was installed there, and does every process say that it is ready? Asks only; `helm test` runs it."""

import http.client
import socket
from collections.abc import Iterable, Iterator
from http import HTTPStatus

from controller.kube import Api, NotFound
from install.registration import Address
from install.rest_mapping import Manifest, name_of, path_of

_TIMEOUT_SECONDS = 5.0


async def missing(api: Api, manifests: Iterable[Manifest]) -> list[str]:
    """Return what of *manifests* is not in the control plane."""
    return [f"{name_of(each)} is not there: run helm upgrade" for each in manifests if not await _is_there(api, each)]


def unready(address: Address) -> Iterator[str]:
    """Say which of the processes behind *address* are not ready, and why; a name may stand for several."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        yield f"{address.host}: {error}; are there any pods?"
        return
    for host in sorted({str(each[4][0]) for each in found}):
        if trouble := _readiness_error(host, address.port):
            yield f"{address.host} at {host}: {trouble}"


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


async def _is_there(api: Api, manifest: Manifest) -> bool:
    try:
        await api.get(path_of(manifest))
    except NotFound:
        return False
    return True
