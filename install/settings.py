"""What the installer is told on its command line, each with its default and why; reads no file."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from install.credentials import TokenOptions
from install.registration import Address

Command = Literal["check", "apply", "register", "credentials", "verify", "remove"]
Account = Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]+=[a-z0-9.-]+$")]
HostPort = Annotated[str, StringConstraints(pattern=r"^[^:]+:[0-9]{1,5}$")]

_ABOUT = """\
Puts what is ours into a Karmada control plane, and takes it away again. The chart's Jobs run it.

  check        say what is missing before anything is changed; $ADMISSION_CONFIGURATION is checked too
  apply        definitions, roles, policies, the default queue, and credentials for our processes
  register     once the webhook answers: the webhook configurations
  credentials  renew the credentials that are due
  verify       say what is not there, and which process is not ready
  remove       the webhook configurations first, then all the rest; lists what is still paused of the gated kinds
               ($ADMISSION_CONFIGURATION; none: Volcano Jobs)
"""


class Settings(BaseModel):
    """The flags: `host_namespace` is `--host-namespace`, and so on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Command
    kubeconfig: Path | None = Field(None, description="way to the Karmada API server")
    objects: Path | None = Field(None, description="folder with the chart's objects for it")
    namespace: str = Field("karmada-system", description="namespace there for what needs one")
    host_kubeconfig: Path | None = Field(
        None, description="way to the cluster that our pods run in; none: this pod's account"
    )
    host_namespace: str | None = Field(None, description="namespace of our pods")
    account: tuple[Account, ...] = Field(
        (),
        description="ACCOUNT=SECRET: whose token is kept in which Secret; may be repeated; none: no tokens are issued",
    )
    token_days: float = Field(
        90, gt=0, description="life of a token; an API server may grant less; renewed after two thirds"
    )
    certificate_secret: str | None = Field(None, description="Secret with the webhook's ca.crt")
    webhook_address: HostPort | None = Field(None, description="HOST:PORT of the webhook; none: it is not waited for")
    webhook_name: str | None = Field(
        None,
        description="name or address that the webhook's certificate must bear; none: the host of --webhook-address",
    )
    wait_seconds: float = Field(300, gt=0, le=3600, description="for the webhook, or for the controller to end")
    controller: str | None = Field(None, description="Deployment to bring to rest before anything is removed")
    interpreter: bool = Field(default=False, description="whether Karmada must know interpreter customizations")
    authenticated_callers: bool = Field(
        default=False, description="whether the webhook requires client certificates; check and apply warn if not"
    )
    ready: tuple[HostPort, ...] = Field((), description="HOST:PORT whose /readyz must answer well; may be repeated")
    renew: bool = Field(default=False, description="with credentials: all of them, due or not")
    resume: bool = Field(
        default=False, description="with remove: resume the bindings of gated kinds that are suspended"
    )

    @property
    def token_options(self) -> TokenOptions:
        """Return who is issued what."""
        secrets: Mapping[str, str] = dict(each.split("=", 1) for each in self.account)
        return TokenOptions(secrets, self.namespace, self.host_namespace or "", timedelta(days=self.token_days))

    @property
    def address(self) -> Address | None:
        """Return where the webhook is called from within its cluster."""
        return _address(self.webhook_address, self.webhook_name) if self.webhook_address else None

    @property
    def probed(self) -> tuple[Address, ...]:
        """Return whose readiness is asked for."""
        return tuple(_address(each) for each in self.ready)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.command in {"apply", "register", "remove", "verify"} and self.objects is None:
            raise ValueError(f"{self.command} needs --objects")
        if self.command == "credentials" and not self.account:
            raise ValueError("credentials needs at least one --account")
        if self.command == "register" and self.certificate_secret is None:
            raise ValueError("register needs --certificate-secret")
        if (self.account or self.certificate_secret or self.controller) and self.host_namespace is None:
            raise ValueError("--account, --certificate-secret and --controller need --host-namespace")
        if self.account and self.kubeconfig is None:
            raise ValueError("--account needs --kubeconfig, from which the others are made")
        return self


def _address(text: str, name: str | None = None) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port), name or host)


def parse_flags(arguments: Sequence[str] | None = None) -> Settings:
    """Return the settings that *arguments* make; what is wrong with them is a sentence and exit code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m install",
        allow_abbrev=False,
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=get_args(Command))
    for name, field in Settings.model_fields.items():
        if name != "command":
            _add(parser, name, field.description or "", field.default)
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        flag = f"--{str(first['loc'][0]).replace('_', '-')}: " if first["loc"] else ""
        print(f"install: {flag}{first['msg'].removeprefix('Value error, ')}", file=sys.stderr)  # noqa: T201 -- to the user
        raise SystemExit(2) from error


def _add(parser: argparse.ArgumentParser, name: str, text: str, default: object) -> None:
    flag = f"--{name.replace('_', '-')}"
    if default is False:
        parser.add_argument(flag, action="store_const", const=True, dest=name, help=text)
        return
    action = "append" if isinstance(default, tuple) else "store"
    shown = f"{text} (default: {default})" if default else text
    parser.add_argument(flag, action=action, dest=name, metavar="", help=shown)
