"""Asks the controller's visibility endpoint about the workloads of one namespace, with the user's own token."""

import asyncio
import os
import ssl
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from controller.api.meta import ConfigMap
from controller.api.visibility import VisibleWorkloads, namespace_path
from controller.cli.errors import InputError
from controller.kube.client import Api, connection_problem
from controller.kube.errors import ApiError, read_status
from controller.kube.kubeconfig import client_context

URL_VARIABLE = "VOLCANO_GLOBAL_SERVER_URL"
CA_VARIABLE = "VOLCANO_GLOBAL_SERVER_CA"

_CONFIG_MAP = "/api/v1/namespaces/{}/configmaps/volcano-global-visibility"

#: Replicas that do not lead refuse, so that another connection may reach the leader.
_RETRIES, _PAUSE_SECONDS = 12, 0.25

_TIMEOUT = aiohttp.ClientTimeout(total=15, sock_connect=5)


class VisibilityError(Exception):
    """The endpoint cannot be asked, or does not answer; the message says why and what to do."""


class ServerAddress(NamedTuple):
    """Where the endpoint is, and how its certificate is verified."""

    url: str
    ca: str = ""
    """CA certificates in PEM; empty for those of the system."""


async def visible_workloads(api: Api, address: ServerAddress, namespace: str, name: str = "") -> VisibleWorkloads:
    """Return the workloads of *namespace*, all or those with *name*; raise `VisibilityError`."""
    if not api.access.authorization:
        text = "this kubeconfig has no token, which the endpoint needs; use one with a token"
        raise VisibilityError(text)
    if not address.url.startswith("https://"):
        raise VisibilityError(f"the address {address.url!r} of the endpoint does not begin with https://")
    try:
        context = client_context(pem=address.ca)
    except ssl.SSLError as error:
        raise VisibilityError(f"the CA certificates of the endpoint cannot be used: {error}") from error
    query = f"?{urlencode({'name': name})}" if name else ""
    url = f"{address.url.rstrip('/')}{namespace_path(quote(namespace, safe=''))}{query}"
    status, body = await _get(api, url, context)
    for _ in range(_RETRIES):
        if status != HTTPStatus.SERVICE_UNAVAILABLE:
            break
        await asyncio.sleep(_PAUSE_SECONDS)
        status, body = await _get(api, url, context)
    if status != HTTPStatus.OK:
        raise VisibilityError(f"{address.url} answered {status}: {read_status(body).message or 'no reason given'}")
    try:
        return msgspec.json.decode(body, type=VisibleWorkloads)
    except msgspec.MsgspecError as error:
        raise VisibilityError(f"{address.url} did not answer with a list of workloads: {error}") from error


def address_of(url: str, ca: Path | None = None) -> ServerAddress:
    """Return the address *url* with the CA certificates in the file *ca*; raise `InputError`."""
    try:
        return ServerAddress(url, ca.read_text() if ca else "")
    except OSError as error:
        raise InputError(f"{ca}: {(error.strerror or 'it cannot be read').lower()}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{ca}: the CA certificates are not in PEM") from error


async def published_address(api: Api, karmada_namespace: str) -> ServerAddress:
    """Return the address in the environment, or the one that the chart publishes in the control plane."""
    if url := os.environ.get(URL_VARIABLE):
        file = os.environ.get(CA_VARIABLE)
        return await asyncio.to_thread(address_of, url, Path(file) if file else None)
    try:
        data = msgspec.json.decode(await api.get(_CONFIG_MAP.format(karmada_namespace)), type=ConfigMap).data
    except (ApiError, msgspec.MsgspecError) as error:
        remedy = "ask an operator to switch `visibility.enabled` on, or name it with --server-url"
        raise VisibilityError(f"the address of the visibility endpoint is not known: {error}; {remedy}") from error
    return ServerAddress(data.get("url", ""), data.get("ca.crt", ""))


async def _get(api: Api, url: str, context: ssl.SSLContext) -> tuple[int, bytes]:
    headers = {"Authorization": api.access.authorization or ""}
    try:
        async with api.session.get(
            url, headers=headers, ssl=context, timeout=_TIMEOUT, allow_redirects=False
        ) as answer:
            return answer.status, await answer.read()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        problem = str(error) or type(error).__name__
        if isinstance(error, aiohttp.ClientConnectorError):
            problem = connection_problem(error)
        raise VisibilityError(f"{url.partition('/apis/')[0]} cannot be reached: {problem}") from error
