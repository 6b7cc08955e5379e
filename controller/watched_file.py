"""A file that is read again while we run: one that cannot be used leaves what was read before in force."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Generic, NoReturn, TypeVar

import structlog

Content = TypeVar("Content")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class WatchedFile(ABC, Generic[Content]):
    """One file, by contents: mounted files change by symbolic links, which keep their times."""

    NAME: ClassVar[str]
    """What is in it, as it is called in what is logged."""

    def __init__(self, path: Path | None, current: Content) -> None:
        self.current = current
        """What is in force."""
        self.error: str | None = None
        """Why the file as it is now is not in force."""
        self._path = path
        self._text: str | None = None

    @abstractmethod
    def parse(self, text: str) -> Content:
        """Return what *text* says. Raises `ValueError`."""

    def read(self) -> bool:
        """Take what the file says; return whether that is new. Raises `ValueError`."""
        if self._path is None:
            return False
        try:
            text = self._path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise self.unreadable(error) from error
        if text == self._text:
            return False
        before, self.current = self.current, self.parse(text)
        self._text = text
        return self.current != before

    def unreadable(self, error: Exception) -> ValueError:
        """Return what is raised where there is no text at all."""
        return ValueError(f"the {self.NAME} cannot be read: {error}")

    def refresh(self) -> bool:
        """Take what is new in the file and say whether there was anything; what cannot be used is told of once."""
        try:
            is_new = self.read()
        except ValueError as error:
            if str(error) != self.error:
                message = f"{self.NAME} not loaded, the old one stays in force"
                log.error(message, file=str(self._path), error=str(error))  # noqa: TRY400 -- it says it all
            self.error = str(error)
            return False
        self.error = None
        if is_new:
            message = f"{self.NAME} loaded"
            log.info(message, file=str(self._path))
        return is_new

    async def follow(self, changed: Callable[[Content], None], *, poll_seconds: float) -> NoReturn:
        """Tell *changed* of all that is new, until cancelled."""
        while True:
            await asyncio.sleep(poll_seconds)
            if await asyncio.to_thread(self.refresh):
                changed(self.current)
