"""Child processes that keep to themselves and never outlive us.

Each runs in its own session, so that Ctrl-C at the terminal reaches only us,
and is killed by the kernel when we die in whatever way.
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
# This one ends with the interpreter, whoever asks for a child.
_FORKER: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="forker")


class ProcessError(Exception):
    """A child could not be started or ended before it was told to."""


def spawn(
    command: Sequence[str | Path], *, log: Path, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start *command* with its output appended to *log*."""
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
    except BaseException:  # interrupted while it started
        terminate(started.result(), grace_seconds=0)
        raise


def terminate(process: subprocess.Popen[bytes], *, grace_seconds: float) -> None:
    """Ask the whole session of *process* to end, and kill what is left after the grace."""
    _signal_session(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_seconds)
    _signal_session(process, signal.SIGKILL)
    process.wait()


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of *log*, indented, or a word that there are none."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:]) or "    (it printed nothing)"


@dataclass(slots=True)
class ChildProcess:
    """A program that is to run until it is stopped."""

    name: str
    log: Path
    environment: Mapping[str, str] | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def pid(self) -> int | None:
        """The process id, or ``None`` while it is not started."""
        return self._process.pid if self._process else None

    def start(self, command: Sequence[str | Path]) -> None:
        """Start it."""
        self._process = spawn(command, log=self.log, environment=self.environment)

    def check(self) -> None:
        """Raise when it has ended by itself."""
        if self._process is None or self._process.poll() is not None:
            code = self._process.returncode if self._process else None
            raise ProcessError(f"{self.name} ended by itself (exit code {code}); its last lines:\n{tail(self.log)}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it alone, for instance to freeze it."""
        if self._process:
            self._process.send_signal(number)

    def stop(self, *, grace_seconds: float = _GRACE_SECONDS) -> None:
        """End it in order; nothing happens when it runs no more."""
        if self._process:
            terminate(self._process, grace_seconds=grace_seconds)
        self._process = None

    def kill(self) -> None:
        """End it without any grace, as a power cut would."""
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
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return arm
