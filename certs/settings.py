"""Defines the flags of `certs`, each with its default and reason."""

import ipaddress
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from certs.authority import canonical_name
from certs.rotation import Lifetimes
from controller.api.flags import Groups, read_flags

_DNS_NAME = re.compile(r"[-A-Za-z0-9.*]{1,253}")
_HOST_PORT = re.compile(r".+:[0-9]{1,5}")


def _dns_name(name: str) -> str:
    if not _DNS_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a DNS name; write letters, digits, - and .")
    return name


def _address(address: str) -> str:
    try:
        ipaddress.ip_address(address)
    except ValueError as error:
        raise ValueError(f"{address!r} is not an IP address; write names with --dns") from error
    return address


def _host_port(address: str) -> str:
    if not _HOST_PORT.fullmatch(address):
        raise ValueError(f"{address!r} is not an address; write HOST:PORT")
    return address


Seconds = Annotated[float, Field(gt=0, le=86400)]
#: A time that ends within the calendar.
_MAX_DAYS = 36_500
Days = Annotated[float, Field(gt=0, le=_MAX_DAYS)]
Command = Literal["ensure", "rotate", "status"]

_ABOUT = """\
Manages the certificates of the webhook: its own CA and the serving certificate.

  ensure   renew what is due and publish the CA bundle; writes nothing if nothing is due
  rotate   renew the serving certificate now, with --authority the CA too
  status   print the stored certificates with their renewal times, the published bundles, and what replicas serve

The serving certificate is renewed after the bundle is published, so that it can always be verified.
"""
_EXAMPLES = """\
examples:
  in Secrets, continuously:
    python -m certs ensure --every 60 --secret-namespace volcano-global --secret-name volcano-global-webhook
      --dns volcano-global-webhook.volcano-global.svc --replica volcano-global-webhook.volcano-global.svc:443
      --webhook-configuration volcano-global --kubeconfig karmada.kubeconfig
  in a folder:
    python -m certs ensure --directory certificates --dns localhost
    python -m certs status --directory certificates
"""

#: Groups of flags in the help text, with the placeholder of each value.
_GROUPS: Groups = {
    "storage": {
        "directory": "FOLDER",
        "secret_namespace": "NAME",
        "secret_name": "NAME",
        "host_kubeconfig": "FILE",
        "external": None,
    },
    "names of the webhook": {"dns": "NAME", "ip": "ADDRESS"},
    "publishing": {
        "webhook_configuration": "NAME",
        "before_registration": None,
        "kubeconfig": "FILE",
        "replica": "HOST:PORT",
    },
    "timing": {
        "every": "SECONDS",
        "authority": None,
        "authority_days": "DAYS",
        "leaf_days": "DAYS",
        "settle_seconds": "SECONDS",
        "overlap_seconds": "SECONDS",
    },
}


class CertificateSettings(BaseModel):
    """Flags of `certs`: `secret_name` is `--secret-name`, and so on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Command
    directory: Path | None = Field(
        None, description="folder for the certificates, instead of Secrets; the webhook reads its subfolder `serving`"
    )
    secret_namespace: str | None = Field(None, description="namespace of the Secrets with the certificates")
    secret_name: str | None = Field(
        None,
        description="Secret that the webhook mounts; the CA's key is in another, with the suffix `-authority`",
    )
    host_kubeconfig: Path | None = Field(
        None,
        description="kubeconfig of the cluster with the Secrets and the webhook; none: the pod's service account",
    )
    external: bool = Field(
        default=False,
        description="an issuer such as cert-manager manages the serving Secret: only publish its ca.crt",
    )
    dns: tuple[Annotated[str, AfterValidator(_dns_name)], ...] = Field(
        (), description="DNS name of the webhook; may be repeated"
    )
    ip: tuple[Annotated[str, AfterValidator(_address)], ...] = Field(
        (), description="IP address of the webhook; may be repeated"
    )
    webhook_configuration: tuple[str, ...] = Field(
        (), description="name of webhook configurations (mutating and validating) to publish in; may be repeated"
    )
    before_registration: bool = Field(
        default=False,
        description="whether the webhook configurations may not exist yet: publish in those that do, next to their CAs",
    )
    kubeconfig: Path | None = Field(None, description="kubeconfig of the Karmada API server with the configurations")
    replica: tuple[Annotated[str, AfterValidator(_host_port)], ...] = Field(
        (),
        description="HOST:PORT of the webhook, all addresses of a DNS name; may be repeated. Once all serve the newest"
        " certificate, old CAs leave the bundle; none: they leave when they expire",
    )
    every: Seconds | None = Field(
        None, description="interval in which to reconcile until stopped, for a sidecar; none: reconcile once"
    )
    settle_seconds: float = Field(
        5,
        ge=0,
        le=600,
        description="time for API servers to observe a new bundle before a certificate that needs it is served",
    )
    overlap_seconds: float = Field(
        600,
        ge=0,
        le=_MAX_DAYS * 86_400,
        description="minimum time that old CAs stay in the bundle, since mounted Secrets change late",
    )
    authority: bool = Field(default=False, description="with rotate: renew the CA too")
    authority_days: Days = Field(365, description="lifetime of the CA; long, so that it is replaced rarely")
    leaf_days: Days = Field(90, description="lifetime of the serving certificate; it is renewed when a third is left")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the serving certificate, as they are read from it."""
        return (*self.dns, *map(canonical_name, self.ip))

    @property
    def lifetimes(self) -> Lifetimes:
        """Return the lifetimes of the certificates."""
        return Lifetimes(timedelta(days=self.authority_days), timedelta(days=self.leaf_days))

    @model_validator(mode="after")
    def _validate_combinations(self) -> Self:
        if (self.secret_name is None) != (self.secret_namespace is None):
            raise ValueError("--secret-namespace and --secret-name belong together")
        if (self.directory is None) == (self.secret_name is None):
            raise ValueError("set either --directory or --secret-name to store the certificates")
        if self.command != "status" and not self.external and not self.names:
            raise ValueError("set at least one --dns or --ip by which the API server calls the webhook")
        if self.external and self.command == "rotate":
            raise ValueError("an external certificate is rotated by its issuer; with cert-manager: cmctl renew")
        return self


def parse_flags(arguments: Sequence[str] | None = None) -> CertificateSettings:
    """Return the settings for *arguments*; an invalid flag prints one sentence and exits with code 2."""
    return read_flags(CertificateSettings, arguments, description=_ABOUT, groups=_GROUPS, epilog=_EXAMPLES)
