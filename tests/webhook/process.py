"""The webhook as the process that operators run."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self


class WebhookProcess:
    """`python -m webhook` on ports of its own choice, over the certificates in a folder."""

    def __init__(self, certificates: Path, *flags: str) -> None:
        addresses = ["--host", "127.0.0.1", "--port", "0", "--plain-host", "127.0.0.1", "--plain-port", "0"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "webhook", *addresses, "--certificate-directory", certificates, *flags],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        started = self.wait_for("webhook started")
        self.port, self.plain_port = started["port"], started["plain_port"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def wait_for(self, event: str) -> dict:
        """Read the log up to *event* and return its line."""
        for line in self._process.stdout:
            entry = json.loads(line)
            if entry["event"] == event:
                return entry
        raise AssertionError(f"the webhook ended before {event!r}, with exit code {self._process.wait()}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def end(self) -> int:
        """Wait for the process to end by itself and return its exit code."""
        self._process.stdout.read()
        return self._process.wait(10)
