"""Where the API server is and how we prove who we are.

Read through kubernetes-asyncio, so that every form of authentication that
``kubectl`` takes works here too. Nothing is sent from here.
"""

import asyncio
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config


class KubeconfigError(Exception):
    """The kubeconfig, or the account of the pod, cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class ApiServerAccess:
    """One way to one API server, as it was read; read it again when it is refused."""

    server: str
    authorization: str | None
    tls: ssl.SSLContext | None
    """``None`` for plain HTTP."""
    server_name: str | None
    """What the server's certificate must be made out to, if not the host in *server*."""
    proxy: str | None


async def load(kubeconfig: Path | None, context: str | None = None) -> ApiServerAccess:
    """Read *kubeconfig*, or without one the pod's account, or else the user's own kubeconfig."""
    path = kubeconfig or _default_path()
    try:
        configuration = await _configuration(path, context)
        return await _api_server_access(configuration)
    except (ConfigException, OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError) as error:
        source = f"kubeconfig {path}" if path else "the pod's service account"
        raise KubeconfigError(f"{source} cannot be used: {error}") from error


def _default_path() -> Path | None:
    """Return the user's kubeconfig; ``None`` inside a cluster."""
    if named := os.environ.get("KUBECONFIG"):
        return Path(named)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    return Path.home() / ".kube" / "config"


async def _configuration(path: Path | None, context: str | None) -> Any:
    configuration = Configuration()
    if path is None:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call] # it ships no annotations
        return configuration
    await asyncio.to_thread(_check_files, path)
    await load_kube_config(str(path), context=context, client_configuration=configuration, persist_config=False)
    return configuration


def _check_files(path: Path) -> None:
    """Raise what is wrong with files that the loader would stumble over; several may be named, as in $KUBECONFIG."""
    parts = [Path(part) for part in str(path).split(os.pathsep) if part]
    readable = [part for part in parts if part.is_file()]
    if not readable:
        raise FileNotFoundError("no such file")
    for part in readable:
        if not isinstance(yaml.safe_load(part.read_text()), dict):
            raise TypeError("it is no kubeconfig: a mapping with clusters, users and contexts is expected")


async def _api_server_access(configuration: Any) -> ApiServerAccess:
    token = await configuration.get_api_key_with_prefix("BearerToken")
    server = configuration.host.rstrip("/")
    return ApiServerAccess(
        server=server,
        authorization=token.strip() if token else None,
        tls=_tls_context(configuration) if server.startswith("https://") else None,
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
    )


def _tls_context(configuration: Any) -> ssl.SSLContext:
    """Return a context that trusts the named CA alone; the system's when none is named."""
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    # Control planes make their certificates with many tools and are tested with clients written in Go,
    # which do not ask for the extensions that Python 3.13 began to insist on.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context
