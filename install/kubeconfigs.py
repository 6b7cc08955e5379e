"""The kubeconfig of one of our processes, made from the installer's own and a token; reads and writes nothing."""

import base64
import binascii
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml


class CredentialsError(Exception):
    """No credentials can be made of what there is; the message says why."""


class _Claims(msgspec.Struct):
    issued_at: float = msgspec.field(name="iat")
    expires_at: float = msgspec.field(name="exp")


def with_token(text: str, token: str, *, folder: Path = Path()) -> str:
    """Return the kubeconfig *text* with one user, who shows *token*; files it names are relative to *folder*."""
    cluster = _cluster(text)
    if authority := cluster.pop("certificate-authority", None):
        cluster["certificate-authority-data"] = base64.b64encode((folder / authority).read_bytes()).decode()
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "karmada", "cluster": cluster}],
        "users": [{"name": "volcano-global", "user": {"token": token}}],
        "contexts": [{"name": "karmada", "context": {"cluster": "karmada", "user": "volcano-global"}}],
        "current-context": "karmada",
    }
    return yaml.safe_dump(made, sort_keys=False)


def is_due(text: str, server: dict[str, Any], now: datetime) -> bool:
    """Say whether the kubeconfig *text* must be made anew: two thirds of its token's life over, or another server."""
    try:
        document = yaml.safe_load(text)
        token = document["users"][0]["user"]["token"]
        claims = _claims(token)
        known = document["clusters"][0]["cluster"]
    except (CredentialsError, KeyError, IndexError, TypeError, yaml.YAMLError):
        return True
    due = claims.issued_at + (claims.expires_at - claims.issued_at) * 2 / 3
    return now.timestamp() >= due or known.get("server") != server.get("server")


def expiry(token: str) -> datetime:
    """Return when *token* ends."""
    return datetime.fromtimestamp(_claims(token).expires_at, UTC)


def server_of(text: str) -> dict[str, Any]:
    """Return the cluster that the kubeconfig *text* is about."""
    return _cluster(text)


def _cluster(text: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text)
        current = document["current-context"]
        context = next(each["context"] for each in document["contexts"] if each["name"] == current)
        found = next(each["cluster"] for each in document["clusters"] if each["name"] == context["cluster"])
    except (KeyError, TypeError, StopIteration, yaml.YAMLError) as error:
        raise CredentialsError("the kubeconfig names no current context with a cluster") from error
    return dict(found)


def _claims(token: str) -> _Claims:
    try:
        middle = token.split(".")[1]
        return msgspec.json.decode(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)), type=_Claims)
    except (IndexError, binascii.Error, msgspec.MsgspecError) as error:
        raise CredentialsError("the token is none of a service account") from error
