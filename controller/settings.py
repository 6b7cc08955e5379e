"""The controller's flags with their defaults and reasons.

Options of admission are in the VolcanoGlobalConfiguration, which can change at run time.
"""

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from controller.api.flags import Port, Seconds, read_flags
from controller.api.keys import DATA_PLUGINS_NAME, DATA_PLUGINS_NAMESPACE
from controller.estimator.options import EstimatorOptions
from controller.kube.leader_election import LeaseTimings

_DESCRIPTION = """\
Decides which pending workloads of a Karmada control plane run next and where, and resumes them.

Without --kubeconfig it uses the pod's service account, or outside a pod $KUBECONFIG or ~/.kube/config.
On SIGTERM or SIGINT it finishes the writes in flight and exits.
"""


def _default_identity() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


class ControllerSettings(BaseModel):
    """The controller's flags: `admission_configuration` is `--admission-configuration`, and so on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kubeconfig: Path | None = Field(None, description="kubeconfig of the Karmada control plane")
    context: str | None = Field(None, description="context of the kubeconfig; default: its current context")
    hyperjobs: bool = Field(True, description="split HyperJobs, if their CRD is installed")
    hyperjob_kubeconfig: Path | None = Field(
        None,
        description="kubeconfig of the HyperJob controller, to separate its permissions from those of admission; "
        "default: that of the controller",
    )
    data_sources: bool = Field(True, description="locate the data of DataSourceClaims, if their CRDs are installed")
    data_plugins_namespace: str = Field(
        DATA_PLUGINS_NAMESPACE, description=f"namespace of the ConfigMap {DATA_PLUGINS_NAME} in the control plane"
    )
    admission_configuration: Path | None = Field(
        None,
        description="VolcanoGlobalConfiguration file, reloaded when it changes; default: the default of every option",
    )
    webhook_registration: Path | None = Field(
        None,
        description="file with the desired webhook configurations, to detect changes; default: those observed "
        "at the start",
    )
    host: str = Field("0.0.0.0", description="listen address of --port; all by default, for the kubelet's probes")  # noqa: S104 -- inside a pod
    port: Port = Field(8080, description="HTTP port of /metrics, /healthz and /readyz; 0 selects a free port")
    visibility_port: Port | None = Field(
        None,
        description="HTTPS port of the read-only endpoint that shows tenants why their workloads are pending; 0 "
        "selects a free port; default: not served",
    )
    visibility_certificate_directory: Path | None = Field(
        None, description="folder with tls.crt and tls.key of the visibility endpoint, reloaded when they change"
    )
    identity: str = Field(
        default_factory=_default_identity,
        min_length=1,
        max_length=253,
        description="holder identity of the leader lease, unique for each process; a restarted process with the same "
        "identity takes its lease back at once; default: host name and process id, which a restarted container "
        "has again",
    )
    lease_namespace: str = Field("karmada-system", description="namespace of the lease volcano-global-controller")
    lease_seconds: Seconds = Field(
        30,
        description="time after which another process may take a lease that is not renewed; more than renew + connect "
        "+ write seconds",
    )
    renew_seconds: Seconds = Field(12, description="time without a renewal after which the leader stops writing")
    retry_seconds: Seconds = Field(2, description="interval of reading and renewing the lease")
    connect_seconds: Seconds = Field(5, description="timeout of connecting to the API server")
    read_seconds: Seconds = Field(30, description="timeout of reading one object")
    page_seconds: Seconds = Field(60, description="timeout of reading one page of a list, which may be megabytes")
    write_seconds: Seconds = Field(
        10, description="time after which the API server gives up a write; an unknown outcome is resolved after it"
    )
    grace_seconds: Seconds = Field(5, description="additional wait for the response to a write")
    page_size: int = Field(500, ge=1, le=10_000, description="objects per page of a list")
    watch_seconds: Seconds = Field(
        40,
        description="approximate duration of a watch; its regular end separates quiet from broken connections",
    )
    silence_seconds: Seconds = Field(58, description="time without a byte after which a watch is closed")
    fresh_seconds: Seconds = Field(90, description="maximum age of a cache for /readyz; more than --silence-seconds")
    poll_seconds: Seconds = Field(
        2,
        description="interval of reading the configuration file; its content is compared, because ConfigMap mounts "
        "change by symbolic links",
    )
    events_per_second: float = Field(
        20,
        ge=0,
        le=1000,
        description="Kubernetes events written per second, and as many statuses of pending jobs; further ones wait; "
        "0 disables both",
    )
    event_backlog: int = Field(
        2_000, ge=1, le=100_000, description="Kubernetes events that may wait to be written; further ones are dropped"
    )
    decision_log: Path | None = Field(
        None,
        description="file that records the inputs and decisions for `volcano-global replay`; without it decisions are "
        "only logged",
    )
    decision_log_mib: int = Field(
        64, ge=1, le=65_536, description="size after which a new file begins, not counting the snapshot at its start"
    )
    decision_log_files: int = Field(
        4, ge=1, le=1000, description="number of files to keep: FILE, the older FILE.1, and so on"
    )
    scheduler_estimator_service_prefix: str = Field(
        "karmada-scheduler-estimator",
        min_length=1,
        max_length=63,
        description="prefix of the Service names of Karmada's scheduler estimators, before `-CLUSTER`; the estimator "
        "flags are those of Karmada's scheduler, and apply only with `nodeEstimates: Estimator`",
    )
    scheduler_estimator_service_namespace: str = Field(
        "karmada-system", min_length=1, max_length=63, description="namespace of their Services"
    )
    scheduler_estimator_port: int = Field(10352, ge=1, le=65535, description="port of their Services")
    scheduler_estimator_timeout_seconds: float = Field(
        3, gt=0, le=4, description="timeout of a query to an estimator; after it the sum over all nodes decides"
    )
    scheduler_estimator_ca_file: Path | None = Field(
        None, description="CA certificates of the estimators; without it connections are not encrypted"
    )
    scheduler_estimator_cert_file: Path | None = Field(None, description="client certificate for the estimators")
    scheduler_estimator_key_file: Path | None = Field(None, description="key of the client certificate")
    insecure_skip_estimator_verify: bool = Field(
        False, description="encrypt without verifying the estimators' certificates; for tests only"
    )
    stop_seconds: Seconds = Field(
        20, description="time to finish writes in flight at a shutdown; more than the duration of one write"
    )

    @property
    def timings(self) -> LeaseTimings:
        """Return the timings of leader election."""
        return LeaseTimings(
            self.lease_seconds, self.renew_seconds, self.retry_seconds, self.connect_seconds, self.write_seconds
        )

    @property
    def estimator_access(self) -> EstimatorOptions:
        """Return how to connect to scheduler estimators."""
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
        """Reject an incomplete key pair, and one that would not be used."""
        if (self.scheduler_estimator_cert_file is None) != (self.scheduler_estimator_key_file is None):
            raise ValueError("set scheduler-estimator-cert-file and scheduler-estimator-key-file together")
        is_encrypted = self.scheduler_estimator_ca_file is not None or self.insecure_skip_estimator_verify
        if self.scheduler_estimator_cert_file is not None and not is_encrypted:
            raise ValueError("scheduler-estimator-cert-file is not used without scheduler-estimator-ca-file")
        return self

    @model_validator(mode="after")
    def _has_visibility_certificate(self) -> Self:
        """Reject a visibility endpoint without a certificate, and a certificate without the endpoint."""
        if (self.visibility_port is None) != (self.visibility_certificate_directory is None):
            raise ValueError("set visibility-port and visibility-certificate-directory together")
        return self

    @model_validator(mode="after")
    def _in_proportion(self) -> Self:
        """Reject timings that contradict each other."""
        if self.silence_seconds <= 1.25 * self.watch_seconds:
            raise ValueError(
                "silence-seconds must be more than 1.25 times watch-seconds, or a quiet watch is closed as broken"
            )
        if self.fresh_seconds <= self.silence_seconds:
            raise ValueError(
                "fresh-seconds must be above silence-seconds, or a quiet cache makes the controller unready"
            )
        if trouble := self.timings.violation:
            raise ValueError(trouble)
        return self


def parse_flags(arguments: Sequence[str]) -> ControllerSettings:
    """Return the settings in *arguments*, or raise `SettingsError`; `--help` prints all flags and exits."""
    return read_flags(ControllerSettings, arguments, description=_DESCRIPTION)
