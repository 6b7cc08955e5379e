"""A server program on ports of its own: started, waited for, and moved when a port was taken."""

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from localup import ports
from localup.apply import WaitTimeoutError, wait_until
from localup.processes import ChildProcess, ProcessError, tail

_ATTEMPTS: Final = 3
_READY_SECONDS: Final = 60.0

Command = Callable[[Sequence[int]], Sequence[str | Path]]


class Server:
    """A program that keeps its ports from its start to its stop, through kills and restarts.

    Args:
        name: What it is called in messages.
        log: Where its output goes.
        count: How many ports it needs.
    """

    def __init__(self, name: str, log: Path, *, count: int = 1) -> None:
        self._service = ChildProcess(name, log)
        self._count = count
        self.ports: list[int] = []

    @property
    def pid(self) -> int | None:
        """The process id, or ``None`` while it does not run."""
        return self._service.pid

    def start(self, command: Command, is_ready: Callable[[], bool]) -> None:
        """Start it and return when *is_ready* says so, on the same ports as before if it had any."""
        for attempt in range(_ATTEMPTS):
            if not self.ports:
                self.ports = [ports.claim() for _ in range(self._count)]
            try:
                self._run(command, is_ready)
            except ProcessError as error:
                if attempt == _ATTEMPTS - 1 or "address already in use" not in str(error):
                    raise
                self.stop()
            else:
                return

    def freeze(self) -> None:
        """Let it hang, as a machine out of breath would."""
        self._service.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._service.signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without any grace; it keeps its ports."""
        self._service.kill()

    def halt(self) -> None:
        """End it in order; it keeps its ports."""
        self._service.stop()

    def stop(self) -> None:
        """End it and give its ports back.

        Without any grace: what it holds is thrown away, so that order would only take time.
        """
        self.kill()
        for port in self.ports:
            ports.release(port)
        self.ports = []

    def _run(self, command: Command, is_ready: Callable[[], bool]) -> None:
        self._service.start(command(self.ports))

        def answers() -> bool:
            self._service.check()
            with contextlib.suppress(OSError):
                return is_ready()
            return False

        try:
            wait_until(answers, f"{self._service.name} ready", seconds=_READY_SECONDS, progress=self._progress)
        except WaitTimeoutError as error:
            raise ProcessError(f"{error}; its last lines:\n{tail(self._service.log)}") from error

    def _progress(self) -> int:
        """Return how much it has printed."""
        log = self._service.log
        return log.stat().st_size if log.exists() else 0


@contextlib.contextmanager
def stop_on_error(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* when the start inside fails or is interrupted."""
    try:
        yield
    except BaseException:
        stop()
        raise
