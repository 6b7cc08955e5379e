"""Starts child processes that end with this process: commands with a progress line, servers, the project's programs.

Each child runs in its own session, so Ctrl-C reaches only the parent. The kernel kills it when the parent dies. Servers
keep their ports through kills and restarts.
"""

import contextlib
import ctypes
import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final, TextIO

from localup import ports
from localup.apply import WaitTimeoutError, wait_until

_PR_SET_PDEATHSIG: Final = 1
_GRACE_SECONDS: Final = 2.0
_READY_SECONDS: Final = 60.0
_LIBC: Final = ctypes.CDLL(None, use_errno=True)

# The kernel sends the parent-death signal when the *thread* that forked ends.
# This thread ends with the interpreter, whichever thread starts a child.
_FORKER: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="forker")


class ProcessError(Exception):
    """A child process could not be started or ended unexpectedly."""


def spawn(
    command: Sequence[str | Path], *, log: Path, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start *command* and append its output to *log*."""
    parent = os.getpid()

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=cwd,
                start_new_session=True,
                preexec_fn=_die_with_parent(parent),  # noqa: PLW1509 - two system calls, no lock is taken after the fork
            )

    started = _FORKER.submit(start)
    try:
        return started.result()
    except OSError as error:
        raise ProcessError(f"cannot start {command[0]}: {error.strerror}") from error
    except BaseException:  # interrupted during the start
        terminate(started.result(), grace_seconds=0)
        raise


def terminate(process: subprocess.Popen[bytes], *, grace_seconds: float) -> None:
    """Terminate the session of *process* and kill what remains after the grace period."""
    _signal_session(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_seconds)
    _signal_session(process, signal.SIGKILL)
    process.wait()


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of *log*, indented, or a note that it is empty."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:]) or "    (it printed nothing)"


@dataclass(slots=True)
class ChildProcess:
    """Program that runs until it is stopped."""

    name: str
    log: Path
    environment: Mapping[str, str] | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def pid(self) -> int | None:
        """Process id, or ``None`` while it is not started."""
        return self._process.pid if self._process else None

    def start(self, command: Sequence[str | Path]) -> None:
        """Start it."""
        self._process = spawn(command, log=self.log, environment=self.environment)

    def check(self) -> None:
        """Raise if it has ended on its own."""
        if self._process is None or self._process.poll() is not None:
            code = self._process.returncode if self._process else None
            raise ProcessError(f"{self.name} ended unexpectedly (exit code {code}); its last lines:\n{tail(self.log)}")

    def wait_until_ready(self, is_ready: Callable[[], bool]) -> None:
        """Return when *is_ready* returns true; the limit restarts while it writes to its log.

        Raises `ProcessError` if it ended, or is not ready in time.
        """

        def answers() -> bool:
            self.check()
            with contextlib.suppress(OSError):
                return is_ready()
            return False

        def log_size() -> int:
            return self.log.stat().st_size if self.log.exists() else 0

        try:
            wait_until(answers, f"{self.name} ready", seconds=_READY_SECONDS, progress=log_size)
        except WaitTimeoutError as error:
            raise ProcessError(f"{error}; its last lines:\n{tail(self.log)}") from error

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process only, for example to freeze it."""
        if self._process:
            self._process.send_signal(number)

    def freeze(self) -> None:
        """Suspend the process with SIGSTOP."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the process with SIGCONT."""
        self.signal(signal.SIGCONT)

    def stop(self, *, grace_seconds: float = _GRACE_SECONDS) -> None:
        """Terminate it; does nothing if it is not running."""
        if self._process:
            terminate(self._process, grace_seconds=grace_seconds)
        self._process = None

    def kill(self) -> None:
        """Kill it."""
        if self._process:
            _signal_session(self._process, signal.SIGKILL)
            self._process.wait()
        self._process = None


def _signal_session(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _die_with_parent(parent: int) -> Callable[[], None]:
    def arm() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before prctl
            os._exit(1)

    return arm


_TERMINAL_SECONDS: Final = 0.5
_PLAIN_SECONDS: Final = 15.0


class StepError(Exception):
    """A setup step failed; the message names the step, the cause and a remedy."""


@dataclass(frozen=True, slots=True)
class Step:
    """Purpose of a command and remedy if it fails, for the user; it prints so many *parts* lines, 0 if unknown."""

    title: str
    log: Path
    remedy: str
    environment: Mapping[str, str] | None = None
    cwd: Path | None = None
    parts: int = 0


def run(command: Sequence[str | Path], step: Step, *, out: TextIO | None = None) -> None:
    """Run *command* to its end and show its progress."""
    line = _ProgressLine(step.title, out or sys.stdout)
    try:
        process = spawn(command, log=step.log, environment=step.environment, cwd=step.cwd)
    except ProcessError as error:
        raise StepError(f"{step.title} failed: {error}\n{step.remedy}") from error
    try:
        _wait(process, lambda: line.update(_progress(step)), every=line.seconds)
    except BaseException:
        line.close("interrupted")
        terminate(process, grace_seconds=0)
        raise
    if process.returncode:
        line.close("failed")
        raise StepError(f"{step.title} failed; the last lines of its output:\n{tail(step.log)}\n{step.remedy}")
    line.close("done")


class _ProgressLine:
    """Progress line that is rewritten on terminals and printed periodically elsewhere."""

    def __init__(self, title: str, out: TextIO) -> None:
        self._title = title
        self._out = out
        self._began = time.monotonic()
        self._terminal = out.isatty()
        self.seconds = _TERMINAL_SECONDS if self._terminal else _PLAIN_SECONDS
        self._write("…" if self._terminal else "started")

    def update(self, detail: str) -> None:
        self._write(f"{self._elapsed()}  {detail}")

    def close(self, outcome: str) -> None:
        self._write(f"{outcome} after {self._elapsed()}")
        if self._terminal:
            print(file=self._out, flush=True)

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._began:.0f} s"

    def _write(self, text: str) -> None:
        line = f"{self._title}: {text}"
        if self._terminal:
            width = os.get_terminal_size(self._out.fileno()).columns - 1
            print(f"\r\x1b[K{line[:width]}", end="", file=self._out, flush=True)
        else:
            print(line, file=self._out, flush=True)


def _wait(process: subprocess.Popen[bytes], update: Callable[[], None], *, every: float) -> None:
    while True:
        try:
            process.wait(every)
        except subprocess.TimeoutExpired:
            update()
        else:
            return


def _progress(step: Step) -> str:
    """Return the share of the parts that are done, if their number is known, and the last line of the output."""
    last = _last_line(step.log)
    if not step.parts:
        return last
    done = len(step.log.read_bytes().splitlines())
    return f"{min(100 * done // step.parts, 99)} %  {last}"


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 500))
        lines = file.read().decode(errors="replace").splitlines()
    return lines[-1] if lines else ""


_ROOT: Final = Path(__file__).parents[1]
_PROBE_TIMEOUT_SECONDS: Final = 2.0
#: As in the chart's pods: if a leader is killed while it releases its lease, its successor waits for the expiry.
_CHART_GRACE_SECONDS: Final = 40.0

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

    def stop(self, *, grace_seconds: float = _CHART_GRACE_SECONDS) -> None:
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
