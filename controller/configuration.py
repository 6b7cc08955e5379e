"""Loads the VolcanoGlobalConfiguration from its file and reloads it when the file changes."""

from pathlib import Path

from controller.api.configuration import ConfigurationError, VolcanoGlobalConfiguration, load_configuration
from controller.watched_file import WatchedFile


class ConfigurationFile(WatchedFile[VolcanoGlobalConfiguration]):
    """The configuration file; ``read`` raises `ConfigurationError`."""

    NAME = "configuration"

    def __init__(self, path: Path | None) -> None:
        super().__init__(path, VolcanoGlobalConfiguration())

    def parse(self, text: str) -> VolcanoGlobalConfiguration:
        """Return the configuration in *text*. Raises `ConfigurationError`."""
        return load_configuration(text)

    def unreadable(self, error: Exception) -> ValueError:
        """Return what is raised where there is no text at all."""
        return ConfigurationError(f"the VolcanoGlobalConfiguration cannot be read: {error}")
