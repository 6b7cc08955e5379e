"""Reads the address of the API server and the credentials for it.

It uses kubernetes-asyncio, so that every authentication method of ``kubectl`` works.
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
    """The kubeconfig or service account cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class ApiServerAccess:
    """Address and credentials of an API server; read them again after a 401, or where its certificate is refused."""

    server: str
    authorization: str | None
    tls: ssl.SSLContext | None
    """``None`` for plain HTTP."""
    server_name: str | None
    """Name in the server's certificate, if it differs from the host in *server*."""
    proxy: str | None
    client_certificate: bytes | None = None
    """The client certificate in PEM, if there is one."""
    trusted: bytes | None = None
    """The CAs that its certificate is verified with, in PEM; ``None`` for those of the system."""

    @property
    def credentials(self) -> tuple[str | None, bytes | None, bytes | None]:
        """Token, client certificate and CAs; with other ones a request may succeed where it fails with these."""
        return self.authorization, self.client_certificate, self.trusted


async def load_access(kubeconfig: Path | None, context: str | None = None) -> ApiServerAccess:
    """Read *kubeconfig*, or the pod's service account, or the user's default kubeconfig."""
    path = kubeconfig or _default_path()
    try:
        configuration = await _configuration(path, context)
        return await _api_server_access(configuration)
    except (ConfigException, OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError) as error:
        source = f"kubeconfig {path}" if path else "the pod's service account"
        raise KubeconfigError(f"{source} cannot be used: {_problem(error, context)}") from error


def _problem(error: Exception, context: str | None) -> str:
    """Return why the credentials cannot be read, in a sentence for users."""
    if isinstance(error, OSError) and error.errno:
        return f"{f'{error.filename}: ' if error.filename else ''}{(error.strerror or '').lower()}"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    if isinstance(error, yaml.YAMLError):
        mark = getattr(error, "problem_mark", None)
        return "it is not valid YAML" + (f" in line {mark.line + 1}" if mark else "")
    if isinstance(error, ConfigException) and context and "context" in str(error).lower():
        return f"it has no context {context!r}"
    return str(error).removeprefix("Invalid kube-config file. ")


def _default_path() -> Path | None:
    """Return the path of the user's kubeconfig; ``None`` inside a cluster."""
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
    """Raise an error for files that the loader fails on; *path* may be a list, as in $KUBECONFIG."""
    parts = [Path(part) for part in str(path).split(os.pathsep) if part]
    readable = [part for part in parts if part.is_file()]
    if not readable:
        raise FileNotFoundError("it is a folder" if path.is_dir() else "no such file")
    for part in readable:
        if not isinstance(yaml.safe_load(part.read_text()), dict):
            raise TypeError("it is not a kubeconfig: expected a mapping with clusters, users and contexts")


async def _api_server_access(configuration: Any) -> ApiServerAccess:
    token = await configuration.get_api_key_with_prefix("BearerToken")
    server = configuration.host.rstrip("/")
    # Read before the context loads them: if a file changes in between, the next failure loads it again.
    certificate = await asyncio.to_thread(_content, configuration.cert_file)
    trusted = await asyncio.to_thread(_content, configuration.ssl_ca_cert)
    return ApiServerAccess(
        server=server,
        authorization=token.strip() if token else None,
        tls=_tls_context(configuration) if server.startswith("https://") else None,
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
        client_certificate=certificate,
        trusted=trusted,
    )


def _content(file: str | None) -> bytes | None:
    return Path(file).read_bytes() if file else None


def client_context(*, pem: str | None = None, file: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts only the CAs in *pem* or *file*, or those of the system if neither is given."""
    context = ssl.create_default_context(cadata=pem or None, cafile=file or None)
    # Certificates come from many tools and are tested with Go clients, which do not require the extensions that
    # Python 3.13 checks by default.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _tls_context(configuration: Any) -> ssl.SSLContext:
    """Return a context that trusts only the configured CA, or the system's CAs if none is configured."""
    context = client_context(file=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context
