"""One of our own processes beside a control plane: started, waited for, shot, and started again."""

import http.client
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final

from localup.apply import WaitTimeoutError, wait_until
from localup.processes import ChildProcess, ProcessError, spawn, tail, terminate

_ROOT: Final = Path(__file__).parents[1]
_READY_TIMEOUT_SECONDS: Final = 60.0
_PROBE_TIMEOUT_SECONDS: Final = 2.0
#: As in the pods of the chart: a leader that is shot while it says good-bye is followed only when its lease runs out.
_GRACE_SECONDS: Final = 40.0

Command = Callable[[], Sequence[str | Path]]


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """What one run of a process has beside its defaults: further flags, and changes to its environment."""

    flags: Sequence[str | Path] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class ManagedProcess:
    """A Python program of this repository that keeps its log, and what it was told, through kills and restarts.

    Args:
        name: What it is called in messages.
        log: Where its output goes; a restart appends to it.
        command: What follows ``python``, asked anew at each start.
        is_ready: Says whether it does its work.
        environment: What its environment has beside ours.
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
        self.name = name
        self.log = log
        self._command = command
        self._is_ready = is_ready
        self._service = ChildProcess(name, log, _environment(log.parent, environment or {}))
        self._log_offset = 0

    @property
    def pid(self) -> int | None:
        """The process id, or ``None`` while it is not started."""
        return self._service.pid

    @property
    def output(self) -> str:
        """What it has printed since its last start."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(self._log_offset)
            return file.read().decode(errors="replace")

    def start(self) -> None:
        """Start it, anew if it runs, and return when it is ready."""
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Start it, anew if it runs, without waiting for anything."""
        self.stop()
        self._log_offset = self.log.stat().st_size if self.log.exists() else 0
        self._service.start(self._command_line())

    def _command_line(self) -> Sequence[str | Path]:
        return [sys.executable, *self._command()]

    def wait(self) -> None:
        """Return when it is ready; raise when it ends instead or takes too long."""

        def answers() -> bool:
            self._service.check()
            return self._is_ready()

        try:
            wait_until(answers, f"{self.name} ready", seconds=_READY_TIMEOUT_SECONDS, progress=lambda: len(self.output))
        except WaitTimeoutError as error:
            raise ProcessError(f"{error}; its last lines:\n{tail(self.log)}") from error

    def check(self) -> None:
        """Raise when it was started and has ended by itself."""
        if self.pid is not None:
            self._service.check()

    def stop(self) -> None:
        """End it in order; nothing happens when it runs no more."""
        self._service.stop(grace_seconds=_GRACE_SECONDS)

    def kill(self) -> None:
        """End it without any grace, as a power cut would."""
        self._service.kill()

    def freeze(self) -> None:
        """Let it hang, as a machine out of breath would."""
        self._service.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._service.signal(signal.SIGCONT)


class ManagedProgram(ManagedProcess):
    """Any other program; its command begins with itself."""

    def _command_line(self) -> Sequence[str | Path]:
        return self._command()


def run_to_completion(name: str, log: Path, command: Sequence[str | Path]) -> None:
    """Run a Python program of this repository to its end.

    Raises:
        ProcessError: It failed; the text has its last lines.
    """
    process = spawn([sys.executable, *command], log=log, environment=_environment(log.parent, {}))
    try:
        code = process.wait()
    except BaseException:
        terminate(process, grace_seconds=0)
        raise
    if code:
        raise ProcessError(f"{name} failed (exit code {code}); its last lines:\n{tail(log)}")


def is_http_ready(port: int, *, path: str = "/readyz") -> bool:
    """Say whether what listens on *port* of this machine calls itself ready."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PROBE_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _environment(folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    # What is tried is this checkout, wherever it is started from; what a killed process leaves goes with the run.
    ours = {"PYTHONPATH": str(_ROOT), "PYTHONUNBUFFERED": "1", "TMPDIR": str(folder)}
    return {**os.environ, **ours, **more}
