"""Defines the flags of the installer, each with its default and reason."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from controller.api.flags import read_flags
from install.credentials import TokenOptions
from install.registration import Address

Command = Literal["check", "apply", "register", "credentials", "verify", "remove"]
Account = Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]+=[a-z0-9.-]+$")]
HostPort = Annotated[str, StringConstraints(pattern=r"^[^:]+:[0-9]{1,5}$")]

_ABOUT = """\
Installs volcano-global in a Karmada control plane, or uninstalls it. The Jobs of the chart run it.

  check        check the prerequisites and $ADMISSION_CONFIGURATION without changing anything
  apply        apply definitions, roles, policies and the default queue, and issue credentials
  register     apply the webhook configurations once the webhook is reachable
  credentials  renew the credentials that are due
  verify       report missing objects and unready processes
  remove       remove the webhook configurations, then all other objects; list suspended bindings of gated kinds
               ($ADMISSION_CONFIGURATION; none: Volcano Jobs)
"""


class InstallSettings(BaseModel):
    """Flags of the installer: `host_namespace` is `--host-namespace`, and so on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Command
    kubeconfig: Path | None = Field(None, description="kubeconfig of the Karmada API server")
    objects: Path | None = Field(None, description="folder with the chart's objects for the control plane")
    namespace: str = Field("karmada-system", description="namespace in the control plane for namespaced objects")
    host_kubeconfig: Path | None = Field(
        None, description="kubeconfig of the pods' cluster; none: the pod's service account"
    )
    host_namespace: str | None = Field(None, description="namespace of the pods")
    account: tuple[Account, ...] = Field(
        (),
        description="ACCOUNT=SECRET: Secret for a service account's token; may be repeated; none: issue no tokens",
    )
    token_days: float = Field(
        90, gt=0, le=36_500, description="lifetime of a token; an API server may grant less; renewed after two thirds"
    )
    certificate_secret: str | None = Field(None, description="Secret with the webhook's ca.crt")
    webhook_address: HostPort | None = Field(None, description="HOST:PORT of the webhook; none: do not wait for it")
    webhook_name: str | None = Field(
        None,
        description="name or address that the webhook's certificate must cover; none: the host of --webhook-address",
    )
    webhook_deployment: str | None = Field(
        None,
        description="Deployment of the webhook; `register` waits up to two minutes until it has no replicas of an "
        "earlier version; none: it does not wait for that",
    )
    wait_seconds: float = Field(
        300, gt=0, le=3600, description="time to wait for the webhook, or for --job and --controller to stop"
    )
    job: str | None = Field(None, description="Job of `register` to stop before anything is removed")
    controller: str | None = Field(None, description="Deployment to scale to zero before anything is removed")
    interpreter: bool = Field(default=False, description="whether Karmada must support interpreter customizations")
    authenticated_callers: bool = Field(
        default=False, description="whether the webhook requires client certificates; check and apply warn if not"
    )
    ready: tuple[HostPort, ...] = Field(
        (), description="HOST:PORT of a process that must be ready by /readyz; may be repeated"
    )
    renew: bool = Field(default=False, description="with credentials: renew all, due or not")
    resume: bool = Field(
        default=False, description="with remove: resume the bindings of gated kinds that are suspended"
    )

    @property
    def token_options(self) -> TokenOptions:
        """Return which tokens are issued."""
        secrets: Mapping[str, str] = dict(account.split("=", 1) for account in self.account)
        return TokenOptions(secrets, self.namespace, self.host_namespace or "", timedelta(days=self.token_days))

    @property
    def address(self) -> Address | None:
        """Return the address of the webhook."""
        return _address(self.webhook_address, self.webhook_name) if self.webhook_address else None

    @property
    def probed(self) -> tuple[Address, ...]:
        """Return the addresses of the processes that must be ready."""
        return tuple(_address(text) for text in self.ready)

    @model_validator(mode="after")
    def _validate_combinations(self) -> Self:
        if self.command in {"apply", "register", "remove", "verify"} and self.objects is None:
            raise ValueError(f"{self.command} needs --objects")
        if self.command == "credentials" and not self.account:
            raise ValueError("credentials needs at least one --account")
        if self.command == "register" and self.certificate_secret is None:
            raise ValueError("register needs --certificate-secret")
        needs_host = self.account or self.certificate_secret or self.job or self.controller or self.webhook_deployment
        if needs_host and self.host_namespace is None:
            raise ValueError(
                "--account, --certificate-secret, --webhook-deployment, --job and --controller need --host-namespace"
            )
        if self.account and self.kubeconfig is None:
            raise ValueError("--account needs --kubeconfig, from which the kubeconfigs are derived")
        return self


def _address(text: str, name: str | None = None) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port), name or host)


def parse_flags(arguments: Sequence[str] | None = None) -> InstallSettings:
    """Return the settings for *arguments*; an invalid flag prints one sentence and exits with code 2."""
    fields = {name: field for name, field in InstallSettings.model_fields.items() if name != "command"}
    flags = {name: None if field.default is False else "" for name, field in fields.items()}
    return read_flags(InstallSettings, arguments, description=_ABOUT, groups={"": flags})
