"""Derives the kubeconfig of a process from the installer's kubeconfig and a token."""

import base64
import binascii
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml


class CredentialsError(Exception):
    """Credentials cannot be issued; the message says why."""


class _Claims(msgspec.Struct):
    issued_at: float = msgspec.field(name="iat")
    expires_at: float = msgspec.field(name="exp")


def with_token(text: str, token: str, *, folder: Path = Path()) -> str:
    """Return the kubeconfig *text* with *token* as its only user; files it names are relative to *folder*."""
    cluster = _cluster(text)
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
        cluster = document["clusters"][0]["cluster"]
    except (CredentialsError, KeyError, IndexError, TypeError, yaml.YAMLError):
        return True
    due = claims.issued_at + (claims.expires_at - claims.issued_at) * 2 / 3
    return now.timestamp() >= due or cluster.get("server") != server.get("server")


def expiry(token: str) -> datetime:
    """Return when *token* expires."""
    return datetime.fromtimestamp(_claims(token).expires_at, UTC)


def server_of(text: str) -> dict[str, Any]:
    """Return the cluster of the kubeconfig *text*."""
    return _cluster(text)


def _cluster(text: str) -> dict[str, Any]:
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
