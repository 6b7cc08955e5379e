"""Defines the flags of the webhook, each with its default and reason."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from controller.api.flags import Groups, Port, Seconds, read_flags

_ABOUT = """\
Suspends new bindings of gated kinds, and applies Volcano's defaults and rules to Jobs, HyperJobs and Queues.

The Karmada API server sends reviews over HTTPS. /readyz on the plain port reports why the webhook is not ready.
Files are reloaded when they change. SIGTERM and SIGINT stop the process.
"""

#: Groups of flags in the help text, with the placeholder of each value.
_GROUPS: Groups = {
    "ports": {"host": "ADDRESS", "port": "PORT", "plain_host": "ADDRESS", "plain_port": "PORT"},
    "files": {"certificate_directory": "FOLDER", "admission_configuration": "FILE", "kubeconfig": "FILE"},
    "authentication": {
        "webhook_configuration": "NAME",
        "client_ca": "FILE",
        "client_names": "NAME",
    },
    "limits": {
        "max_body_bytes": "BYTES",
        "max_inline_bytes": "BYTES",
        "max_buffered_bytes": "BYTES",
        "max_waiting_reviews": "COUNT",
        "max_connections": "COUNT",
    },
    "times": {
        "handshake_seconds": "SECONDS",
        "header_seconds": "SECONDS",
        "body_seconds": "SECONDS",
        "review_seconds": "SECONDS",
        "keepalive_seconds": "SECONDS",
        "poll_seconds": "SECONDS",
        "drain_seconds": "SECONDS",
        "stop_seconds": "SECONDS",
    },
}


class WebhookSettings(BaseModel):
    """Flags of the webhook: `certificate_directory` is `--certificate-directory`, and so on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field("0.0.0.0", description="address of the HTTPS port; all, since the API server is remote")  # noqa: S104 -- inside a pod
    port: Port = Field(8443, description="HTTPS port for reviews; above 1024, which needs no privilege")
    plain_host: str = Field("0.0.0.0", description="address of the plain port")  # noqa: S104 -- inside a pod
    plain_port: Port = Field(
        8080,
        description="plain port for /metrics, /healthz, /readyz; separate for NetworkPolicies",
    )
    certificate_directory: Path = Field(
        Path("/etc/volcano-global/webhook-tls"), description="folder with tls.crt and tls.key, such as a mounted Secret"
    )
    admission_configuration: Path | None = Field(
        None,
        description="file with the VolcanoGlobalConfiguration, as for the controller; none: Volcano Jobs are gated",
    )
    kubeconfig: Path | None = Field(
        None,
        description="kubeconfig of the Karmada API server; none: neither queues nor the published bundle are read",
    )
    webhook_configuration: str = Field(
        "volcano-global",
        description="name of the webhook configurations; their CA bundle must cover the certificate",
    )
    client_ca: Path | None = Field(
        None, description="file with the CAs of client certificates; none: callers need no certificate"
    )
    client_names: tuple[str, ...] = Field(
        (),
        description="name that a client certificate must have; may be repeated; none: any name signed by --client-ca",
    )
    max_body_bytes: int = Field(
        4 << 20, ge=1024, description="largest review; the API server accepts objects up to 3 MiB"
    )
    max_inline_bytes: int = Field(
        64 << 10, ge=1024, description="largest review answered in the event loop; a thread answers larger ones"
    )
    max_waiting_reviews: int = Field(
        16, ge=1, description="large reviews that may wait for the thread; further ones are answered 503"
    )
    max_connections: int = Field(
        1024, ge=16, description="open connections; one more closes the one that was silent for longest"
    )
    max_buffered_bytes: int = Field(
        32 << 20, ge=1024, description="total size of bodies being received; beyond it requests are answered 503"
    )
    handshake_seconds: Seconds = Field(
        5, description="deadline of the TLS handshake, which takes the API server one round trip"
    )
    header_seconds: Seconds = Field(5, description="deadline for the headers of the first request on a connection")
    body_seconds: Seconds = Field(5, description="deadline for a complete body; the API server itself waits no longer")
    review_seconds: Seconds = Field(
        4, description="deadline for a large review; below the API server's 5, so that it receives the reason"
    )
    keepalive_seconds: Seconds = Field(
        120, description="idle time of a connection; above the API server's 90, so that the API server closes first"
    )
    poll_seconds: Seconds = Field(
        2, description="interval for comparing files by contents, since mounted Secrets change by symbolic links"
    )
    drain_seconds: float = Field(
        5,
        ge=0,
        le=3600,
        description="time between a stop signal and closing the port, in which callers move to other replicas",
    )
    stop_seconds: Seconds = Field(5, description="time for running reviews when the port closes")

    @model_validator(mode="after")
    def _validate_client_names(self) -> Self:
        if self.client_names and self.client_ca is None:
            raise ValueError("--client-names needs --client-ca: name the file with the CA of the client certificates")
        return self


def parse_flags(arguments: Sequence[str]) -> WebhookSettings:
    """Return the settings in *arguments*, or raise `SettingsError`; `--help` prints all flags and exits."""
    return read_flags(WebhookSettings, arguments, description=_ABOUT, groups=_GROUPS)
