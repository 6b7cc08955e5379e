"""Options of the connections to estimators, and the error of a failed query."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EstimatorOptions:
    """How estimators are reached; the names are those of the flags of Karmada's scheduler."""

    service_prefix: str = "karmada-scheduler-estimator"
    service_namespace: str = "karmada-system"
    port: int = 10352
    timeout_seconds: float = 3
    ca_file: Path | None = None
    """If unset, and unless verification is skipped, connections are not encrypted."""
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_skip_verify: bool = False

    def hosts(self, cluster: str) -> tuple[str, str]:
        """Return the host names of a cluster's estimator: with the default cluster domain, and without a domain."""
        service = f"{self.service_prefix}-{cluster}.{self.service_namespace}.svc"
        return f"{service}.cluster.local", service


class EstimatorError(Exception):
    """An estimator did not answer, or its answer is invalid; the message says why."""

    def __init__(self, why: str, *, is_timeout: bool = False) -> None:
        super().__init__(why)
        self.is_timeout = is_timeout
