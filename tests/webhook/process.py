"""Runs the webhook as a process."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from tests.waiting import LIMIT_SECONDS


class WebhookProcess:
    """`python -m webhook` on free ports, with the certificates of a folder."""

    def __init__(self, certificates: Path, *flags: str) -> None:
        addresses = ["--host", "127.0.0.1", "--port", "0", "--plain-host", "127.0.0.1", "--plain-port", "0"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "webhook", *addresses, "--certificate-directory", certificates, *map(str, flags)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        # Read continuously, since a full pipe would block the webhook.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            started = self.wait_for("webhook started")
        except BaseException:
            self._process.kill()
            raise
        self.port, self.plain_port = started["port"], started["plain_port"]

    @property
    def pid(self) -> int:
        return self._process.pid

    def memory(self, field: str = "VmRSS") -> int:
        """Return a memory figure of the kernel in bytes; ``VmHWM`` is the peak."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.end()

    def wait_for(self, event: str) -> dict:
        """Read the log up to *event* and return its line."""
        while line := self._lines.get(timeout=LIMIT_SECONDS):
            entry = json.loads(line)
            if entry["event"] == event:
                return entry
        raise AssertionError(f"the webhook ended before {event!r}, with exit code {self.end()}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def end(self) -> int:
        """Wait for the process to end and return its exit code."""
        code = self._process.wait(LIMIT_SECONDS)
        self._reader.join()
        return code

    def _read(self) -> None:
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put("")
