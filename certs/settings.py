"""What `certs` is told on its command line, each with its default and why; reads no file."""

import argparse
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from certs.rotation import Lifetimes

Seconds = Annotated[float, Field(gt=0, le=86400)]
Command = Literal["ensure", "rotate", "status"]

_ABOUT = """\
Keeps the webhook's certificates: a CA of its own and the serving certificate.

  ensure   renew what is due and publish the CA bundle; with nothing due, nothing is written
  rotate   renew the serving certificate now, with --authority the CA too
  status   print what is there, what is published, what replicas serve, and when it must be renewed

The serving certificate is renewed only once the bundle is published: what is served can always be verified.
"""
_EXAMPLES = """\
examples:
  in Secrets, looked after for as long as it runs:
    python -m certs ensure --every 60 --secret-namespace volcano-global --secret-name volcano-global-webhook
      --dns volcano-global-webhook.volcano-global.svc --replica volcano-global-webhook.volcano-global.svc:443
      --webhook-configuration volcano-global --kubeconfig karmada.kubeconfig
  in a folder:
    python -m certs ensure --directory certificates --dns localhost
    python -m certs status --directory certificates
"""

#: What each group of flags is about, and what stands for the value of each.
_GROUPS = {
    "where they are kept": {
        "directory": "FOLDER",
        "secret_namespace": "NAME",
        "secret_name": "NAME",
        "host_kubeconfig": "FILE",
        "external": "",
    },
    "what the webhook is called by": {"dns": "NAME", "ip": "ADDRESS"},
    "where the bundle is published": {"webhook_configuration": "NAME", "kubeconfig": "FILE", "replica": "HOST:PORT"},
    "when": {
        "every": "SECONDS",
        "authority": "",
        "authority_days": "DAYS",
        "leaf_days": "DAYS",
        "settle_seconds": "SECONDS",
        "overlap_seconds": "SECONDS",
    },
}


class Settings(BaseModel):
    """The flags: `secret_name` is `--secret-name`, and so on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Command
    directory: Path | None = Field(
        None, description="folder to keep them in, where there are no Secrets; the webhook reads its part `serving`"
    )
    secret_namespace: str | None = Field(None, description="namespace of the Secrets to keep them in")
    secret_name: str | None = Field(
        None,
        description="Secret that the webhook mounts; the CA's key is in another, with `-authority` behind its name",
    )
    host_kubeconfig: Path | None = Field(
        None, description="way to the cluster that has the Secrets, where the webhook runs; none: this pod's account"
    )
    external: bool = Field(
        default=False,
        description="somebody else keeps the serving Secret, as cert-manager does: only publish its ca.crt",
    )
    dns: tuple[str, ...] = Field((), description="DNS name the webhook is called by; may be repeated")
    ip: tuple[str, ...] = Field((), description="address the webhook is called by; may be repeated")
    webhook_configuration: tuple[str, ...] = Field(
        (), description="webhook configurations of this name, mutating and validating, to publish in; may be repeated"
    )
    kubeconfig: Path | None = Field(None, description="way to the Karmada API server that has them")
    replica: tuple[str, ...] = Field(
        (),
        description="HOST:PORT of the webhook, all addresses of a DNS name; may be repeated. Once all of them serve the"
        " newest certificate, former CAs leave the bundle; none: when they expire",
    )
    every: Seconds | None = Field(
        None, description="seconds between rounds without end, for a sidecar; none: one round"
    )
    settle_seconds: float = Field(
        5,
        ge=0,
        le=600,
        description="between publishing a bundle and serving what needs it, for all API servers to hear",
    )
    overlap_seconds: float = Field(
        600, ge=0, description="for which former CAs stay at least, as mounted Secrets change late"
    )
    authority: bool = Field(default=False, description="with rotate: the CA too")
    authority_days: float = Field(365, gt=0, description="life of the CA; long, so that replacing it is a rare event")
    leaf_days: float = Field(
        90, gt=0, description="life of the serving certificate; a third of it is left when it is renewed"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """Return what the serving certificate is made out to."""
        return (*self.dns, *self.ip)

    @property
    def lifetimes(self) -> Lifetimes:
        """Return how long certificates are valid."""
        return Lifetimes(timedelta(days=self.authority_days), timedelta(days=self.leaf_days))

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.secret_name is None) != (self.secret_namespace is None):
            raise ValueError("--secret-namespace and --secret-name belong together")
        if (self.directory is None) == (self.secret_name is None):
            raise ValueError("name either a --directory or a Secret to keep them in")
        if self.command != "status" and not self.external and not self.names:
            raise ValueError("name at least one --dns or --ip that the API server calls the webhook by")
        if self.external and self.command == "rotate":
            raise ValueError("rotate is for who keeps the Secret; with cert-manager: cmctl renew")
        return self


def parse_flags(arguments: Sequence[str] | None = None) -> Settings:
    """Return the settings that *arguments* make; what is wrong with them is a sentence and exit code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m certs",
        allow_abbrev=False,
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("ensure", "rotate", "status"))
    for title, flags in _GROUPS.items():
        group = parser.add_argument_group(title)
        for name, value in flags.items():
            _add(group, name, value, Settings.model_fields[name])
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        flag = f"--{str(first['loc'][0]).replace('_', '-')}: " if first["loc"] else ""
        print(f"certs: {flag}{first['msg'].removeprefix('Value error, ')}", file=sys.stderr)  # noqa: T201 -- to the user
        raise SystemExit(2) from error


def _add(group: argparse._ArgumentGroup, name: str, value: str, field: FieldInfo) -> None:
    flag, default = f"--{name.replace('_', '-')}", field.default
    if default is False:
        group.add_argument(flag, action="store_const", const=True, dest=name, help=field.description)
        return
    action = "append" if isinstance(default, tuple) else "store"
    text = f"{field.description} (default: {default:g})" if default else field.description
    group.add_argument(flag, action=action, dest=name, metavar=value, help=text)
