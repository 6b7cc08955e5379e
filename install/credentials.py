"""Issues credentials: a kubeconfig with a service account token of the control plane, in a Secret of the host cluster.

The chart creates each Secret; only its contents are written.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import structlog

from controller.kube.client import Api
from controller.kube.errors import NotFound
from install.kubeconfigs import CredentialsError, expiry, is_due, server_of, with_token

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

KEY = "kubeconfig"


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """Which tokens are issued, and for how long.

    Attributes:
        secrets: Name of the Secret of each service account, by account.
        namespace: Namespace of the service accounts.
        host_namespace: Namespace of the Secrets.
        lifetime: Requested lifetime of a token; the API server may grant less.
    """

    secrets: Mapping[str, str]
    namespace: str
    host_namespace: str
    lifetime: timedelta


class _Secret(msgspec.Struct):
    data: dict[str, bytes] | None = None


class _Granted(msgspec.Struct):
    token: str


class _Request(msgspec.Struct):
    status: _Granted


async def issue(karmada: Api, host: Api, options: TokenOptions, *, kubeconfig: Path, force: bool = False) -> None:
    """Issue the credentials that are due, or all of them with *force*."""
    text = await asyncio.to_thread(kubeconfig.read_text)
    for account, secret in sorted(options.secrets.items()):
        path = f"/api/v1/namespaces/{options.host_namespace}/secrets/{secret}"
        if force or is_due(await _stored_kubeconfig(host, path), server_of(text), datetime.now(UTC)):
            token = await _token(karmada, account, options)
            body = {"data": {KEY: with_token(text, token, folder=kubeconfig.parent).encode()}}
            await host.patch(path, msgspec.json.encode(body), kind="merge")
            log.info("credentials issued", account=account, secret=secret, expires=expiry(token).isoformat())


async def _stored_kubeconfig(host: Api, path: str) -> str:
    try:
        secret = msgspec.json.decode(await host.get(path), type=_Secret)
    except NotFound as error:
        raise CredentialsError(
            f"Secret {path.rpartition('/')[2]!r} does not exist: install the chart, which creates it"
        ) from error
    return (secret.data or {}).get(KEY, b"").decode()


async def _token(karmada: Api, account: str, options: TokenOptions) -> str:
    path = f"/api/v1/namespaces/{options.namespace}/serviceaccounts/{account}/token"
    request = {"spec": {"expirationSeconds": int(options.lifetime.total_seconds())}}
    answer = await karmada.create(path, msgspec.json.encode(request))
    return msgspec.json.decode(answer, type=_Request).status.token
