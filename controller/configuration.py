"""The AdmissionConfiguration in force: read from a file, and read again while we run.

What it means is decided elsewhere.
"""

from pathlib import Path

from controller.api.configuration import AdmissionConfiguration, ConfigurationError, load_configuration
from controller.watched_file import WatchedFile


class ConfigurationFile(WatchedFile[AdmissionConfiguration]):
    """The file; ``read`` raises `ConfigurationError`."""

    NAME = "configuration"

    def __init__(self, path: Path | None) -> None:
        super().__init__(path, AdmissionConfiguration())

    def parse(self, text: str) -> AdmissionConfiguration:
        """Return what *text* says. Raises `ConfigurationError`."""
        return load_configuration(text)

    def unreadable(self, error: Exception) -> ValueError:
        """Return what is raised where there is no text at all."""
        return ConfigurationError(f"the AdmissionConfiguration cannot be read: {error}")
