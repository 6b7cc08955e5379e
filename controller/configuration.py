"""The VolcanoGlobalConfiguration in force: read from a file, and read again while we run.

What it means is decided elsewhere.
"""

from pathlib import Path

from controller.api.configuration import ConfigurationError, VolcanoGlobalConfiguration, load_configuration
from controller.watched_file import WatchedFile


class ConfigurationFile(WatchedFile[VolcanoGlobalConfiguration]):
    """The file; ``read`` raises `ConfigurationError`."""

    NAME = "configuration"

    def __init__(self, path: Path | None) -> None:
        super().__init__(path, VolcanoGlobalConfiguration())

    def parse(self, text: str) -> VolcanoGlobalConfiguration:
        """Return what *text* says. Raises `ConfigurationError`."""
        return load_configuration(text)

    def unreadable(self, error: Exception) -> ValueError:
        """Return what is raised where there is no text at all."""
        return ConfigurationError(f"the VolcanoGlobalConfiguration cannot be read: {error}")
