"""What our processes prove themselves with: a token of a service account in the control plane, kept in a host Secret.

Each Secret is there already, empty or not: the chart makes it, and only its contents are written.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import structlog

from controller.kube import Api, NotFound
from install.kubeconfigs import CredentialsError, expiry, is_due, server_of, with_token

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

KEY = "kubeconfig"


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """Who is issued what, for how long.

    Attributes:
        secrets: The Secret of each service account, by the account's name.
        namespace: Where the service accounts are.
        host_namespace: Where the Secrets are.
        life: How long a token is asked for; an API server may grant less.
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
    """Write a new kubeconfig wherever it is due, or everywhere with *force*."""
    text = await asyncio.to_thread(kubeconfig.read_text)
    for account, secret in sorted(options.secrets.items()):
        path = f"/api/v1/namespaces/{options.host_namespace}/secrets/{secret}"
        if force or is_due(await _stored_kubeconfig(host, path), server_of(text), datetime.now(UTC)):
            token = await _token(karmada, account, options)
            body = {"data": {KEY: with_token(text, token, folder=kubeconfig.parent).encode()}}
            await host.patch(path, msgspec.json.encode(body), kind="merge")
            log.info("credentials issued", account=account, secret=secret, ends=expiry(token).isoformat())


async def _stored_kubeconfig(host: Api, path: str) -> str:
    try:
        found = msgspec.json.decode(await host.get(path), type=_Secret)
    except NotFound as error:
        raise CredentialsError(f"Secret {path.rpartition('/')[2]!r} does not exist: the chart makes it") from error
    return (found.data or {}).get(KEY, b"").decode()


async def _token(karmada: Api, account: str, options: TokenOptions) -> str:
    path = f"/api/v1/namespaces/{options.namespace}/serviceaccounts/{account}/token"
    wanted = {"spec": {"expirationSeconds": int(options.lifetime.total_seconds())}}
    answer = await karmada.create(path, msgspec.json.encode(wanted))
    return msgspec.json.decode(answer, type=_Request).status.token
