"""The webhook's flags, each with its default and why; reads no file."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=3600)]


_ABOUT = """\
Pauses new bindings of gated kinds, and gives Volcano's answers on Jobs, HyperJobs and Queues.

Reviews come over HTTPS from the Karmada API server. /readyz on the plain port says what is wrong with the
certificate, if anything is. Files are read again while it runs. It stops on SIGTERM and SIGINT.
"""

#: What each group of flags is about, and what stands for the value of each.
_GROUPS = {
    "ports": {"host": "ADDRESS", "port": "PORT", "plain_host": "ADDRESS", "plain_port": "PORT"},
    "files": {"certificate_directory": "FOLDER", "admission_configuration": "FILE", "kubeconfig": "FILE"},
    "who calls, and what he verifies us with": {
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


class SettingsError(Exception):
    """A flag cannot be used; the message names it."""


class Settings(BaseModel):
    """The webhook's flags: `certificate_directory` is `--certificate-directory`, and so on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field("0.0.0.0", description="address of the HTTPS port; all of them, for the API server is elsewhere")  # noqa: S104 -- inside a pod
    port: Port = Field(8443, description="HTTPS port for reviews; above 1024, so that no privilege is needed")
    plain_host: str = Field("0.0.0.0", description="address of the plain port")  # noqa: S104 -- inside a pod
    plain_port: Port = Field(
        8080, description="plain port for /metrics, /healthz, /readyz; apart, so that a NetworkPolicy can tell them"
    )
    certificate_directory: Path = Field(
        Path("/etc/volcano-global/webhook-tls"), description="folder with tls.crt and tls.key, as a Secret is mounted"
    )
    admission_configuration: Path | None = Field(
        None, description="the VolcanoGlobalConfiguration file the controller reads too; none: Volcano Jobs are gated"
    )
    kubeconfig: Path | None = Field(
        None,
        description="way to the Karmada API server; none: queues and the published bundle are not looked at",
    )
    webhook_configuration: str = Field(
        "volcano-global", description="name of our webhook configurations, whose published bundle readiness is about"
    )
    client_ca: Path | None = Field(
        None, description="file with the authorities of callers' certificates; none: callers need no certificate"
    )
    client_names: tuple[str, ...] = Field(
        (), description="name a caller's certificate must bear, may be repeated; none: any that --client-ca signed"
    )
    max_body_bytes: int = Field(
        4 << 20, ge=1024, description="largest review; the API server takes objects up to 3 MiB"
    )
    max_inline_bytes: int = Field(
        64 << 10, ge=1024, description="largest review that the event loop judges; larger ones go to a thread"
    )
    max_waiting_reviews: int = Field(
        16, ge=1, description="larger reviews that wait for the thread; one more, and it is answered 503"
    )
    max_connections: int = Field(
        4096, ge=16, description="open connections; one more, and the one that was silent for longest is closed"
    )
    max_buffered_bytes: int = Field(
        32 << 20, ge=1024, description="bodies under way, all together; one more, and it is answered 503"
    )
    handshake_seconds: Seconds = Field(
        5, description="until the TLS handshake must be done; the API server's is one trip"
    )
    header_seconds: Seconds = Field(5, description="until a new connection must have sent its first request's headers")
    body_seconds: Seconds = Field(5, description="until a body must be there; the API server waits no longer itself")
    review_seconds: Seconds = Field(
        4, description="until a larger review must be judged; below the API server's own 5, so that it hears why not"
    )
    keepalive_seconds: Seconds = Field(
        120, description="until an idle connection is closed; above the API server's 90, so that it closes first"
    )
    poll_seconds: Seconds = Field(
        2, description="how often files are read again; by contents, for mounted Secrets change by symbolic links"
    )
    drain_seconds: float = Field(
        5, ge=0, le=3600, description="between a stop signal and closing the port, for callers to go elsewhere"
    )
    stop_seconds: Seconds = Field(5, description="for reviews under way when the port closes")

    @model_validator(mode="after")
    def _knows_its_callers(self) -> Self:
        if self.client_names and self.client_ca is None:
            raise ValueError("--client-names says whose certificates are taken; name their authority with --client-ca")
        return self


def parse_flags(arguments: Sequence[str]) -> Settings:
    """Return the settings that *arguments* make; `--help` prints them all and leaves."""
    parser = argparse.ArgumentParser(
        prog="python -m webhook",
        allow_abbrev=False,
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for title, flags in _GROUPS.items():
        group = parser.add_argument_group(title)
        for name, value in flags.items():
            field = Settings.model_fields[name]
            action = "append" if isinstance(field.default, tuple) else "store"
            default = f" (default: {field.default})" if field.default else ""
            flag = f"--{name.replace('_', '-')}"
            group.add_argument(flag, action=action, dest=name, metavar=value, help=f"{field.description}{default}")
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            raise SettingsError(first["msg"].removeprefix("Value error, ")) from error
        flag = str(first["loc"][0]).replace("_", "-")
        raise SettingsError(f"--{flag} {first['input']!r}: {first['msg']}") from error
