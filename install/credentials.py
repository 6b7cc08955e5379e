"""Issues credentials: a kubeconfig with a service account token of the control plane, in a Secret of the host cluster.

The chart creates each Secret; only its contents are written.
"""

import asyncio
import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import structlog
import yaml

from controller.kube.client import Api
from install.objects import read_secret

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
KEY = "kubeconfig"


class CredentialsError(Exception):
    """Credentials cannot be issued; the message says why."""


class _Claims(msgspec.Struct):
    issued_at: float = msgspec.field(name="iat")
    expires_at: float = msgspec.field(name="exp")


def with_token(text: str, token: str, *, folder: Path = Path()) -> str:
    """Return the kubeconfig *text* with *token* as its only user; files it names are relative to *folder*."""
    cluster = server_of(text)
    if authority := cluster.pop("certificate-authority", None):
        cluster["certificate-authority-data"] = base64.b64encode((folder / authority).read_bytes()).decode()
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "karmada", "cluster": cluster}],
        "users": [{"name": "volcano-global", "user": {"token": token}}],
        "contexts": [{"name": "karmada", "context": {"cluster": "karmada", "user": "volcano-global"}}],
        "current-context": "karmada",
    }
    return yaml.safe_dump(kubeconfig, sort_keys=False)


def is_due(text: str, server: dict[str, Any], now: datetime) -> bool:
    """Return whether the kubeconfig *text* must be renewed.

    It is due after two thirds of its token's lifetime, or if the server has changed.
    """
    try:
        document = yaml.safe_load(text)
        token = document["users"][0]["user"]["token"]
        claims = _claims(token)
        address = document["clusters"][0]["cluster"]["server"]
    except (CredentialsError, AttributeError, LookupError, TypeError, ValueError, yaml.YAMLError):
        return True
    due = claims.issued_at + (claims.expires_at - claims.issued_at) * 2 / 3
    return now.timestamp() >= due or address != server.get("server")


def expiry(token: str) -> datetime:
    """Return when *token* expires."""
    return datetime.fromtimestamp(_claims(token).expires_at, UTC)


def reduced_days(token: str, requested: timedelta) -> float | None:
    """Return for how many days *token* was issued, or ``None`` if for about as long as *requested*."""
    claims = _claims(token)
    granted = timedelta(seconds=claims.expires_at - claims.issued_at)
    return None if granted >= requested * 0.99 else round(granted / timedelta(days=1), 2)


def server_of(text: str) -> dict[str, Any]:
    """Return the cluster of the kubeconfig *text*."""
    try:
        document = yaml.safe_load(text)
        current = document["current-context"]
        context = next(item["context"] for item in document["contexts"] if item["name"] == current)
        cluster = next(item["cluster"] for item in document["clusters"] if item["name"] == context["cluster"])
    except (KeyError, TypeError, StopIteration, yaml.YAMLError) as error:
        raise CredentialsError("the kubeconfig has no current context with a cluster") from error
    return dict(cluster)


def _claims(token: str) -> _Claims:
    try:
        payload = token.split(".")[1]
        return msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
    except (IndexError, binascii.Error, msgspec.MsgspecError) as error:
        raise CredentialsError("the token is not a service account token") from error


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


class _Granted(msgspec.Struct):
    token: str


class _Request(msgspec.Struct):
    status: _Granted


async def issue(karmada: Api, host: Api, options: TokenOptions, *, kubeconfig: Path, force: bool = False) -> None:
    """Issue the credentials that are due, or all of them with *force*."""
    text = await asyncio.to_thread(kubeconfig.read_text)
    for account, secret in sorted(options.secrets.items()):
        stored = "" if force else await _stored_kubeconfig(host, options.host_namespace, secret)
        if force or is_due(stored, server_of(text), datetime.now(UTC)):
            path = f"/api/v1/namespaces/{options.host_namespace}/secrets/{secret}"
            token = await _token(karmada, account, options)
            body = {"data": {KEY: with_token(text, token, folder=kubeconfig.parent).encode()}}
            await host.patch(path, msgspec.json.encode(body), kind="merge")
            log.info("credentials issued", account=account, secret=secret, expires=expiry(token).isoformat())
            if days := reduced_days(token, options.lifetime):
                log.warning(
                    "token lifetime reduced by the API server",
                    account=account,
                    days=days,
                    remedy="let certs.schedule run several times in a third of this; an expired token renews nothing",
                )


async def _stored_kubeconfig(host: Api, namespace: str, secret: str) -> str:
    data = await read_secret(host, namespace, secret)
    if data is None:
        raise CredentialsError(f"Secret {secret!r} does not exist: install the chart, which creates it")
    # Bytes that are no text are renewed like any other unreadable kubeconfig.
    return data.get(KEY, b"").decode(errors="replace")


async def _token(karmada: Api, account: str, options: TokenOptions) -> str:
    path = f"/api/v1/namespaces/{options.namespace}/serviceaccounts/{account}/token"
    request = {"spec": {"expirationSeconds": int(options.lifetime.total_seconds())}}
    answer = await karmada.create(path, msgspec.json.encode(request))
    return msgspec.json.decode(answer, type=_Request).status.token
