"""What the webhook needs of the operators' AdmissionConfiguration: what is gated, and what holds of jobs."""

from pathlib import Path

import structlog

from controller.api.configuration import AdmissionConfiguration, ConfigurationError, load_configuration
from webhook.jobs import JobPolicy
from webhook.resourcebindings import VOLCANO_JOB, Gate, GroupKind

log = structlog.get_logger(__name__)


def gate(configuration: AdmissionConfiguration) -> Gate:
    """Return the gate that *configuration* describes; Volcano Jobs always wait."""
    further = (GroupKind(rule.group, rule.kind) for rule in configuration.workloads)
    return Gate(frozenset({VOLCANO_JOB, *further}), configuration.exempt_namespaces)


def job_policy(configuration: AdmissionConfiguration) -> JobPolicy:
    """Return what *configuration* says of jobs."""
    return JobPolicy(
        default_queue=configuration.default_queue,
        denies_bad_queues=configuration.queue_check == "Deny",
        growth=configuration.growth,
        exempt_namespaces=configuration.exempt_namespaces,
    )


class Configuration:
    """The configuration in force, read again when its file changes; a bad file leaves the old one in force."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._text: str | None = None
        self._trouble: str | None = None
        self.admission = AdmissionConfiguration()
        self.gate = Gate()
        self.jobs = JobPolicy()
        if file:
            self._read(file)

    def refresh(self) -> None:
        """Take what is new in the file."""
        if self._file is None:
            return
        try:
            self._read(self._file)
            self._trouble = None
        except ConfigurationError as error:
            if str(error) != self._trouble:
                log.warning("configuration not loaded", file=str(self._file), reason=str(error))
            self._trouble = str(error)

    def _read(self, file: Path) -> None:
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the AdmissionConfiguration cannot be read: {error}") from error
        if text != self._text:
            self.admission = load_configuration(text)
            self.gate, self.jobs = gate(self.admission), job_policy(self.admission)
            self._text = text
            log.info("configuration loaded", file=str(file))
