"""Runs a server program on claimed ports, with restart and a retry if a port is in use."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from localup import ports
from localup.processes import ChildProcess, ProcessError

_ATTEMPTS: Final = 3

Command = Callable[[Sequence[int]], Sequence[str | Path]]


class Server:
    """Program that keeps its ports through kills and restarts.

    Args:
        name: The name used in messages.
        log: The file for its output.
        count: The number of ports.
    """

    def __init__(self, name: str, log: Path, *, count: int = 1) -> None:
        self._service = ChildProcess(name, log)
        self._count = count
        self.ports: list[int] = []

    @property
    def pid(self) -> int | None:
        """Process id, or ``None`` while it is not running."""
        return self._service.pid

    def start(self, command: Command, is_ready: Callable[[], bool]) -> None:
        """Start it and return when *is_ready* returns true; ports of an earlier start are reused."""
        for attempt in range(_ATTEMPTS):
            if not self.ports:
                self.ports = [ports.claim() for _ in range(self._count)]
            try:
                self._service.start(command(self.ports))
                self._service.wait_until_ready(is_ready)
            except ProcessError as error:
                if attempt == _ATTEMPTS - 1 or "address already in use" not in str(error):
                    raise
                self.stop()
            else:
                return

    def freeze(self) -> None:
        """Suspend it with SIGSTOP."""
        self._service.freeze()

    def resume(self) -> None:
        """Resume it with SIGCONT."""
        self._service.resume()

    def kill(self) -> None:
        """Kill it; its ports stay claimed."""
        self._service.kill()

    def halt(self) -> None:
        """Terminate it; its ports stay claimed."""
        self._service.stop()

    def stop(self) -> None:
        """Kill it and release its ports.

        Its data are deleted anyway, so an orderly shutdown would only cost time.
        """
        self.kill()
        for port in self.ports:
            ports.release(port)
        self.ports = []


@contextlib.contextmanager
def stop_on_error(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* if the block fails or is interrupted."""
    try:
        yield
    except BaseException:
        stop()
        raise
