"""The flags of the history endpoint with their defaults and reasons."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from controller.api.flags import Port, Seconds, is_loopback, read_flags

_DESCRIPTION = """\
Serves the decision log of a controller to the web console and to operators, read-only.

It reads the files of --decision-log on the same machine and never writes. Callers present a token of the control plane;
they need the permission to list `decisions` of visibility.volcano-global.io.
"""


class HistorySettings(BaseModel):
    """The flags: `probe_port` is `--probe-port`, and so on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decision_log: Path = Field(description="file of the controller's flag --decision-log")
    kubeconfig: Path | None = Field(None, description="kubeconfig of the Karmada control plane, for reviews of callers")
    context: str | None = Field(None, description="context of the kubeconfig; default: its current context")
    host: str = Field(
        "127.0.0.1", description="listen address; another one than a loopback address requires a certificate"
    )
    port: Port = Field(8445, description="port of the endpoint; 0 selects a free port")
    certificate_directory: Path | None = Field(
        None,
        description="folder with tls.crt and tls.key, reloaded when they change; without it the endpoint uses HTTP",
    )
    probe_host: str = Field("0.0.0.0", description="listen address of --probe-port")  # noqa: S104 -- the kubelet's probes
    probe_port: Port = Field(8081, description="HTTP port of /healthz and /readyz; 0 selects a free port")
    replay_seconds: Seconds = Field(
        60, description="processor time for the replay of one moment; a longer one is refused"
    )
    poll_seconds: Seconds = Field(2, description="interval of reading the certificate files")

    @model_validator(mode="after")
    def _encrypts(self) -> Self:
        """Refuse to receive tokens over a network in plain text."""
        if self.certificate_directory is None and not is_loopback(self.host):
            raise ValueError("set certificate-directory, or listen on a loopback address: callers send their tokens")
        return self


def parse_flags(arguments: Sequence[str]) -> HistorySettings:
    """Return the settings in *arguments*, or raise `SettingsError`; `--help` prints all flags and exits."""
    return read_flags(HistorySettings, arguments, description=_DESCRIPTION)
