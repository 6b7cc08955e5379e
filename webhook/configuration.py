"""Extracts what the webhook needs from the VolcanoGlobalConfiguration: gated kinds and the policy for jobs."""

from pathlib import Path

from controller.api.configuration import VolcanoGlobalConfiguration
from controller.kube.config_file import ConfigurationFile
from webhook.jobs import JobPolicy
from webhook.resourcebindings import VOLCANO_JOB, GatedKinds, GroupKind


def gated_kinds(configuration: VolcanoGlobalConfiguration) -> GatedKinds:
    """Return the gated kinds of *configuration*; Volcano Jobs are always gated."""
    integrations = (GroupKind(rule.group, rule.kind) for rule in configuration.integrations)
    return GatedKinds(frozenset({VOLCANO_JOB, *integrations}), configuration.exempt_namespaces)


def job_policy(configuration: VolcanoGlobalConfiguration) -> JobPolicy:
    """Return the policy for jobs of *configuration*."""
    return JobPolicy(
        default_queue=configuration.default_queue,
        denies_unusable_queues=configuration.queue_validation == "Deny",
        resize=configuration.resize,
        exempt_namespaces=configuration.exempt_namespaces,
        tenants=configuration.tenants,
        max_parts=configuration.max_hyper_job_parts,
        denies_unmatched_tenants=configuration.unmatched_tenants == "Deny",
    )


class Configuration:
    """Current configuration, reloaded when its file changes; an invalid file leaves the previous one in force."""

    def __init__(self, path: Path | None) -> None:
        self._file = ConfigurationFile(path)
        self._file.read()
        self._apply()

    def refresh(self) -> None:
        """Reload the file if it has changed."""
        if self._file.refresh():
            self._apply()

    def _apply(self) -> None:
        self.admission = self._file.current
        self.gated_kinds, self.jobs = gated_kinds(self.admission), job_policy(self.admission)
