"""Runs servers and the project's processes, with kill and restart; servers keep their ports."""

import contextlib
import http.client
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final

from localup import ports
from localup.processes import ChildProcess, ProcessError, spawn, tail, terminate

_ROOT: Final = Path(__file__).parents[1]
_PROBE_TIMEOUT_SECONDS: Final = 2.0
#: As in the chart's pods: if a leader is killed while it releases its lease, its successor waits for the expiry.
_GRACE_SECONDS: Final = 40.0

Command = Callable[[], Sequence[str | Path]]


#: Starts of a server until its ports are not in use.
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Additional flags and environment variables of a process."""

    flags: Sequence[str | Path] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class ManagedProcess(ChildProcess):
    """Python program of this repository; restarts keep its options and append to its log.

    *command* returns the arguments of ``python`` at each start; *environment* is added to the current one.
    """

    def __init__(
        self,
        name: str,
        log: Path,
        *,
        command: Command,
        is_ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, log, _environment(log.parent, environment or {}))
        self._command = command
        self._is_ready = is_ready
        self._log_offset = 0

    @property
    def output(self) -> str:
        """Output since the last start."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(self._log_offset)
            return file.read().decode(errors="replace")

    def start(self, command: Sequence[str | Path] | None = None) -> None:
        """Start or restart it and return when it is ready."""
        self.begin(command)
        self.wait()

    def begin(self, command: Sequence[str | Path] | None = None) -> None:
        """Start or restart it without waiting."""
        self.stop()
        self._log_offset = self.log.stat().st_size if self.log.exists() else 0
        super().start(command or self._command_line())

    def _command_line(self) -> Sequence[str | Path]:
        return [sys.executable, *self._command()]

    def wait(self) -> None:
        """Return when it is ready; raise `ProcessError` if it ends or is not ready in time."""
        self.wait_until_ready(self._is_ready)

    def check(self) -> None:
        """Raise if it was started and has ended on its own."""
        if self.pid is not None:
            super().check()

    def stop(self, *, grace_seconds: float = _GRACE_SECONDS) -> None:
        """Terminate it; does nothing if it is not running."""
        super().stop(grace_seconds=grace_seconds)


class ManagedProgram(ManagedProcess):
    """Program that is not run by Python; the command starts with its path."""

    def _command_line(self) -> Sequence[str | Path]:
        return self._command()


def run_to_completion(name: str, log: Path, command: Sequence[str | Path]) -> None:
    """Run a Python program of this repository to its end; raise `ProcessError` with its last output if it fails."""
    process = spawn([sys.executable, *command], log=log, environment=_environment(log.parent, {}))
    try:
        code = process.wait()
    except BaseException:
        terminate(process, grace_seconds=0)
        raise
    if code:
        raise ProcessError(f"{name} failed (exit code {code}); its last lines:\n{tail(log)}")


def is_http_ready(port: int, *, path: str = "/readyz") -> bool:
    """Return whether the server on *port* of this machine responds with 200 at *path*."""
    return http_get(port, path) is not None


def http_get(port: int, path: str) -> str | None:
    """Return what the server on *port* of this machine serves at *path*, ``None`` unless it responds with 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PROBE_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.read().decode() if response.status == HTTPStatus.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _environment(folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    # Run this checkout from any directory; temporary files of killed processes are deleted with the run's folder.
    ours = {"PYTHONPATH": str(_ROOT), "PYTHONUNBUFFERED": "1", "TMPDIR": str(folder)}
    return {**os.environ, **ours, **more}


class Server(ChildProcess):
    """Program that keeps its *count* ports through kills and restarts."""

    def __init__(self, name: str, log: Path, *, count: int = 1) -> None:
        super().__init__(name, log)
        self._count = count
        self.ports: list[int] = []

    def serve(self, command: Callable[[Sequence[int]], Sequence[str | Path]], is_ready: Callable[[], bool]) -> None:
        """Start or restart it and return when *is_ready* returns true; ports of an earlier start are reused."""
        self.stop()
        for attempt in range(_ATTEMPTS):
            if not self.ports:
                self.ports = [ports.claim() for _ in range(self._count)]
            try:
                self.start(command(self.ports))
                self.wait_until_ready(is_ready)
            except ProcessError as error:
                if attempt == _ATTEMPTS - 1 or "address already in use" not in str(error):
                    raise
                self.close()
            else:
                return

    def close(self) -> None:
        """Kill it, since its data are deleted anyway, and release its ports."""
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
