"""The web console's flags with their defaults and reasons."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from controller.api.flags import Port, Seconds, is_loopback, read_flags

_DESCRIPTION = """\
Serves read-only web pages about the queues, clusters and workloads of a Karmada control plane, and the same data as
JSON.

Each user signs in with a token of the control plane and sees what its roles allow. Without --kubeconfig it uses the
pod's service account, or outside a pod $KUBECONFIG or ~/.kube/config.
"""


class ConsoleSettings(BaseModel):
    """The console's flags: `probe_port` is `--probe-port`, and so on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kubeconfig: Path | None = Field(None, description="kubeconfig of the Karmada control plane")
    context: str | None = Field(None, description="context of the kubeconfig; default: its current context")
    karmada_namespace: str = Field(
        "karmada-system",
        min_length=1,
        max_length=63,
        description="namespace in which the controller publishes its configuration and the learned run times",
    )
    host: str = Field(
        "127.0.0.1", description="listen address; another one than a loopback address requires a certificate"
    )
    port: Port = Field(8443, description="port of the pages; 0 selects a free port")
    certificate_directory: Path | None = Field(
        None, description="folder with tls.crt and tls.key, reloaded when they change; without it the pages use HTTP"
    )
    proxy_client_ca: Path | None = Field(
        None,
        description="CA certificates of an authenticating proxy: every connection must then present a certificate of "
        "them, and users are those of the headers X-Remote-User and X-Remote-Group",
    )
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="host names in addresses of the console; repeat the flag; default: every host name, which is safe "
        "behind TLS only",
    )
    probe_host: str = Field("0.0.0.0", description="listen address of --probe-port")  # noqa: S104 -- the kubelet's probes
    probe_port: Port = Field(8080, description="HTTP port of /healthz and /readyz; 0 selects a free port")
    refresh_seconds: Seconds = Field(
        2, description="minimum interval of updates of the pages; it grows with the duration of an update"
    )
    max_connections: int = Field(
        1_000,
        ge=10,
        le=100_000,
        description="connections at once; of more, the one without a running request that was silent for longest is "
        "closed",
    )
    max_streams: int = Field(400, ge=1, le=100_000, description="open streams of live updates for all users together")
    max_streams_per_user: int = Field(20, ge=1, le=1_000, description="open streams of live updates of one user")
    requests_per_second: float = Field(
        50,
        gt=0,
        le=10_000,
        description="requests per second of one user, or of one address before the login; 4 ms of CPU time of a page "
        "count as one more",
    )
    reviews_per_second: float = Field(
        100,
        gt=0,
        le=10_000,
        description="TokenReviews and SubjectAccessReviews per second for all users together, and half as many for one",
    )
    analysis_seconds: Seconds = Field(
        20, description="processor time of one forecast, search for counterfactuals or what-if plan; it ends after that"
    )
    poll_seconds: Seconds = Field(2, description="interval of reading the certificate files")
    history_url: str | None = Field(
        None,
        description="https://HOST:PORT of the controllers' history endpoints, all addresses of HOST; http only for a "
        "loopback address; default: no past decisions are shown",
    )
    history_ca: Path | None = Field(
        None,
        description="CA certificates of the history endpoints, reloaded when they change; default: those of the system",
    )

    history_file: Path | None = Field(
        None,
        description="file with the past decisions that were read, for the next console process; one process may use "
        "it; default: they are held in memory only",
    )

    @model_validator(mode="after")
    def _authenticates_history(self) -> Self:
        """Refuse to send the console's own token in plain text, or to an address without a port."""
        if self.history_url is None:
            if self.history_file is not None:
                raise ValueError("history-file requires history-url")
            return self
        parts = urlsplit(self.history_url)
        is_plain = parts.scheme == "http" and parts.hostname in {"127.0.0.1", "localhost", "::1"}
        if not parts.hostname or parts.port is None or parts.path not in {"", "/"}:
            raise ValueError("history-url must be https://HOST:PORT")
        if parts.scheme != "https" and not is_plain:
            raise ValueError("history-url must begin with https://: the console sends its token")
        return self

    @model_validator(mode="after")
    def _encrypts(self) -> Self:
        """Refuse to send tokens over a network in plain text."""
        if self.certificate_directory is None and not is_loopback(self.host):
            raise ValueError("set certificate-directory, or listen on a loopback address: users send their tokens")
        if self.proxy_client_ca is not None and self.certificate_directory is None:
            raise ValueError("proxy-client-ca requires certificate-directory: the proxy is authenticated by TLS")
        return self


def parse_flags(arguments: Sequence[str]) -> ConsoleSettings:
    """Return the settings in *arguments*, or raise `SettingsError`; `--help` prints all flags and exits."""
    return read_flags(ConsoleSettings, arguments, description=_DESCRIPTION)
