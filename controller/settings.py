"""The controller's flags, each with its default and why; reads no file.

What operators decide about admission is not here but in the
VolcanoGlobalConfiguration, which can change while we run.
"""

import argparse
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticUndefined

from controller.estimator.options import EstimatorOptions
from controller.lease import LeaseTimings

Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=3600)]

_DESCRIPTION = """\
Decides which waiting workloads of a Karmada control plane run next, and where, and resumes them.

Without --kubeconfig the pod's service account is used, outside of a pod $KUBECONFIG or ~/.kube/config.
SIGTERM and SIGINT end it: writes in flight are finished first.
"""


def _default_identity() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


class SettingsError(Exception):
    """A flag cannot be used; the message names it."""


class Settings(BaseModel):
    """The controller's flags: `admission_configuration` is `--admission-configuration`, and so on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kubeconfig: Path | None = Field(None, description="kubeconfig of the Karmada control plane")
    context: str | None = Field(None, description="context in it; none: its current one")
    hyperjobs: bool = Field(
        True, description="whether HyperJobs are split here, where they are defined; false: they are left alone"
    )
    hyperjob_kubeconfig: Path | None = Field(
        None,
        description="kubeconfig of the HyperJob stage, whose user then needs no right to admit, and the controller's "
        "none to make Jobs; none: the controller's own",
    )
    admission_configuration: Path | None = Field(
        None, description="VolcanoGlobalConfiguration file, read again when it changes; none: the defaults"
    )
    webhook_registration: Path | None = Field(
        None,
        description="file with our webhook configurations as they should be, to tell when they are altered; none: "
        "as they are found at the start",
    )
    host: str = Field("0.0.0.0", description="address of the port below; all of them, for probes come from elsewhere")  # noqa: S104 -- inside a pod
    port: Port = Field(8080, description="plain port for /metrics, /healthz, /readyz; 0 takes a free one")
    identity: str = Field(
        default_factory=_default_identity,
        min_length=1,
        max_length=253,
        description="what the lease of the leader calls us; a process that is started again under the same one takes "
        "the lease back at once, so no two may share it; none: machine and process id, the same for a container "
        "that is started again",
    )
    lease_namespace: str = Field("karmada-system", description="namespace of the lease volcano-global-controller")
    lease_seconds: Seconds = Field(
        30, description="until others take a lease that is not renewed; above renew + connect + write seconds"
    )
    renew_seconds: Seconds = Field(12, description="without a renewal for so long we stop writing")
    retry_seconds: Seconds = Field(2, description="how often the lease is looked at and renewed")
    connect_seconds: Seconds = Field(5, description="until a connection to the API server stands")
    read_seconds: Seconds = Field(30, description="until one object is read")
    page_seconds: Seconds = Field(60, description="until one page of a list is read; it may be megabytes")
    write_seconds: Seconds = Field(
        10, description="after which the API server gives up a write; an unknown outcome is unknown for so long"
    )
    grace_seconds: Seconds = Field(5, description="how much longer we wait for its answer")
    page_size: int = Field(500, ge=1, le=10_000, description="objects in one page of a list")
    watch_seconds: Seconds = Field(
        40, description="about how long a watch lasts; its regular end tells a silent connection from a quiet one"
    )
    silence_seconds: Seconds = Field(58, description="after which a watch without a byte is given up")
    fresh_seconds: Seconds = Field(90, description="how old a cache may be for /readyz; above --silence-seconds")
    poll_seconds: Seconds = Field(
        2, description="how often the configuration file is read; by contents, for mounted files change by links"
    )
    events_per_second: float = Field(
        20, ge=0, le=1000, description="events for tenants written in a second; what is more waits, 0 tells nobody"
    )
    event_backlog: int = Field(
        2_000, ge=1, le=100_000, description="news for tenants that may wait to be told; what is more is dropped"
    )
    decision_journal: Path | None = Field(
        None,
        description="file for what decisions are made of, and the decisions, for `volcano-global replay`; none: only "
        "the log tells of them",
    )
    decision_journal_mib: int = Field(
        64, ge=1, le=65_536, description="a new file begins after so much, beside what each begins with"
    )
    decision_journal_files: int = Field(
        4, ge=1, le=1000, description="how many are kept: FILE, before it FILE.1, and so on"
    )
    scheduler_estimator_service_prefix: str = Field(
        "karmada-scheduler-estimator",
        min_length=1,
        max_length=63,
        description="what the names of Karmada's scheduler estimators begin with, before `-CLUSTER`; these flags are "
        "those of Karmada's scheduler, and mean something with `nodeEstimates: Estimator` only",
    )
    scheduler_estimator_service_namespace: str = Field(
        "karmada-system", min_length=1, max_length=63, description="namespace of their Services"
    )
    scheduler_estimator_port: int = Field(10352, ge=1, le=65535, description="port of their Services")
    scheduler_estimator_timeout_seconds: float = Field(
        3, gt=0, le=4, description="until one of them has answered; after that the sum over all nodes decides"
    )
    scheduler_estimator_ca_file: Path | None = Field(
        None, description="certificates of those who sign theirs; none: connections are not encrypted"
    )
    scheduler_estimator_cert_file: Path | None = Field(None, description="our certificate for them")
    scheduler_estimator_key_file: Path | None = Field(None, description="its key")
    insecure_skip_estimator_verify: bool = Field(
        False, description="whether to encrypt without asking who they are; for trials only"
    )
    stop_seconds: Seconds = Field(20, description="for writes in flight when told to stop; above the time of one write")

    @property
    def timings(self) -> LeaseTimings:
        """Return the times of the lease."""
        return LeaseTimings(
            self.lease_seconds, self.renew_seconds, self.retry_seconds, self.connect_seconds, self.write_seconds
        )

    @property
    def estimator_access(self) -> EstimatorOptions:
        """Return how scheduler estimators are reached."""
        return EstimatorOptions(
            service_prefix=self.scheduler_estimator_service_prefix,
            service_namespace=self.scheduler_estimator_service_namespace,
            port=self.scheduler_estimator_port,
            timeout_seconds=self.scheduler_estimator_timeout_seconds,
            ca_file=self.scheduler_estimator_ca_file,
            cert_file=self.scheduler_estimator_cert_file,
            key_file=self.scheduler_estimator_key_file,
            insecure_skip_verify=self.insecure_skip_estimator_verify,
        )

    @model_validator(mode="after")
    def _names_certificate_and_key(self) -> Self:
        """Refuse half of a key pair, and one that would never be shown."""
        if (self.scheduler_estimator_cert_file is None) != (self.scheduler_estimator_key_file is None):
            raise ValueError("scheduler_estimator_cert_file and scheduler_estimator_key_file belong together")
        is_encrypted = self.scheduler_estimator_ca_file is not None or self.insecure_skip_estimator_verify
        if self.scheduler_estimator_cert_file is not None and not is_encrypted:
            raise ValueError("scheduler_estimator_cert_file is never shown without scheduler_estimator_ca_file")
        return self

    @model_validator(mode="after")
    def _in_proportion(self) -> Self:
        """Refuse times that defeat one another."""
        if self.silence_seconds <= 1.25 * self.watch_seconds:
            raise ValueError("silence_seconds must be more than 1.25 times watch_seconds, or quiet watches look dead")
        if self.fresh_seconds <= self.silence_seconds:
            raise ValueError("fresh_seconds must be above silence_seconds, or a quiet cache looks stale")
        if trouble := self.timings.violation:
            raise ValueError(trouble)
        return self


def parse_flags(arguments: Sequence[str]) -> Settings:
    """Return the settings that *arguments* make; `--help` prints them all and leaves."""
    parser = argparse.ArgumentParser(
        prog="python -m controller",
        allow_abbrev=False,
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, field in Settings.model_fields.items():
        default = "" if field.default in {None, PydanticUndefined} else f" (default: {field.default})"
        metavar = "SECONDS" if name.endswith("_seconds") else "FILE" if "Path" in str(field.annotation) else "VALUE"
        parser.add_argument(_flag(name), dest=name, metavar=metavar, help=f"{field.description}{default}")
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        raise SettingsError(_describe(error)) from error


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _describe(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["loc"]:
        return f"{_flag(str(first['loc'][0]))} {first['input']!r}: {first['msg']}"
    return first["msg"].removeprefix("Value error, ").replace("_", "-")
