"""Reloads a file when its content changes, such as the VolcanoGlobalConfiguration.

An invalid file leaves the previous content in force.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Generic, NoReturn, TypeVar

import structlog

from controller.api.configuration import ConfigurationError, VolcanoGlobalConfiguration, load_configuration

Content = TypeVar("Content")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


def read_problem(error: Exception) -> str:
    """Return why a file cannot be read, in words for users."""
    if isinstance(error, OSError) and error.errno:
        return f"{error.filename}: {(error.strerror or 'it cannot be read').lower()}"
    return "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)


class WatchedFile(ABC, Generic[Content]):
    """A file that is compared by content, because mounted ConfigMaps change by symbolic links with unchanged times."""

    NAME: ClassVar[str]
    """Name of the content in log messages."""

    def __init__(self, path: Path | None, current: Content) -> None:
        self.current = current
        """The content in force."""
        self.error: str | None = None
        """Why the present content of the file is not in force."""
        self._path = path
        self._text: str | None = None
        self._rejected: tuple[str, str] | None = None
        """The text that could not be parsed last, and why: parsing a large one takes a second."""

    @abstractmethod
    def parse(self, text: str) -> Content:
        """Return the content of *text*. Raises `ValueError`."""

    def read(self) -> bool:
        """Load the file; return whether its content is new. Raises `ValueError`."""
        if self._path is None:
            return False
        try:
            text = self._path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise self.unreadable(error) from error
        if text == self._text:
            return False
        if self._rejected is not None and text == self._rejected[0]:
            raise ValueError(self._rejected[1])
        try:
            before, self.current = self.current, self.parse(text)
        except ValueError as error:
            self._rejected = text, str(error)
            raise
        self._text = text
        return self.current != before

    def unreadable(self, error: Exception) -> ValueError:
        """Return the exception for a file that cannot be read."""
        return ValueError(f"the {self.NAME} cannot be read: {read_problem(error)}")

    def refresh(self) -> bool:
        """Reload the file and return whether its content is new; log each error once."""
        try:
            is_new = self.read()
        except ValueError as error:
            if str(error) != self.error:
                message = f"{self.NAME} not loaded, the old one stays in force"
                log.error(message, file=str(self._path), error=str(error))  # noqa: TRY400 -- the error is complete without a traceback
            self.error = str(error)
            return False
        self.error = None
        if is_new:
            message = f"{self.NAME} loaded"
            log.info(message, file=str(self._path))
        return is_new

    async def follow(self, changed: Callable[[Content], None], *, poll_seconds: float) -> NoReturn:
        """Call *changed* with every new content until cancelled."""
        if self._path is None:
            await asyncio.Future()
        while True:
            await asyncio.sleep(poll_seconds)
            if await asyncio.to_thread(self.refresh):
                changed(self.current)


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
        return ConfigurationError(f"the VolcanoGlobalConfiguration cannot be read: {read_problem(error)}")
