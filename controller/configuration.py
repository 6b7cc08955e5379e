"""The AdmissionConfiguration in force: read from a file, and read again while we run.

What it means is decided elsewhere; a file that cannot be used leaves the one
before it in force.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import structlog

from controller.api.configuration import AdmissionConfiguration, ConfigurationError, load_configuration

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class ConfigurationFile:
    """One file, by contents: mounted files change by symbolic links, which keep their times."""

    def __init__(self, path: Path | None) -> None:
        self.current = AdmissionConfiguration()
        self.trouble: str | None = None
        """Why the file as it is now is not in force."""
        self._path = path
        self._text: str | None = None

    def read(self) -> bool:
        """Take what the file says; return whether that is new. Raises ``ConfigurationError``."""
        if self._path is None:
            return False
        try:
            text = self._path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the AdmissionConfiguration cannot be read: {error}") from error
        if text == self._text:
            return False
        configuration = load_configuration(text)
        self._text = text
        is_new = configuration != self.current
        self.current = configuration
        return is_new

    async def follow(self, changed: Callable[[AdmissionConfiguration], None], *, poll_seconds: float) -> NoReturn:
        """Tell *changed* of each new configuration, until cancelled."""
        while True:
            await asyncio.sleep(poll_seconds)
            try:
                is_new = await asyncio.to_thread(self.read)
            except ConfigurationError as error:
                self._complain(str(error))
                continue
            self.trouble = None
            if is_new:
                log.info("configuration loaded", file=str(self._path))
                changed(self.current)

    def _complain(self, trouble: str) -> None:
        """Say once for each fault that the old configuration stays in force."""
        if trouble != self.trouble:
            log.error("configuration not loaded, the old one stays in force", file=str(self._path), error=trouble)
        self.trouble = trouble
