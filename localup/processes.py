"""Starts child processes that end with this process.

Each child runs in its own session, so Ctrl-C reaches only the parent. The kernel kills it when the parent dies.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_GRACE_SECONDS: Final = 2.0
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

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process only, for example to freeze it."""
        if self._process:
            self._process.send_signal(number)

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
