"""Runs a temporary etcd, whose data are deleted when it stops."""

import http.client
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Self

from localup.binaries import Binaries
from localup.runfolder import RunFolder
from localup.server import Server, stop_on_error


class Etcd:
    """etcd without fsync: data survive a crash of the process but not of the machine."""

    def __init__(self, binaries: Binaries) -> None:
        self.binaries = binaries
        self._folder: RunFolder | None = None
        self._server: Server | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def server(self) -> Server:
        """The process, which can be killed or frozen."""
        if self._server is None:
            raise RuntimeError("etcd is not started; call start() first")
        return self._server

    @property
    def url(self) -> str:
        """URL for clients."""
        return f"http://127.0.0.1:{self.server.ports[0]}"

    @property
    def data(self) -> Path:
        """Data folder."""
        if self._folder is None:
            raise RuntimeError("etcd is not started; call start() first")
        return self._folder.path / "data"

    def start(self) -> None:
        """Start it without data and wait until it is ready."""
        with stop_on_error(self.stop):
            self._folder = RunFolder()
            self._folder.open()
            self._server = Server("etcd", self._folder.path / "etcd.log", count=2)
            self.restart()

    def restart(self) -> None:
        """Restart it with the same data and ports."""
        self.server.halt()
        self.server.start(self._command, self._is_ready)

    def kill(self) -> None:
        """Kill it; data remain for a restart."""
        self.server.kill()

    def stop(self) -> None:
        """Stop it and delete its data."""
        if self._server:
            self._server.stop()
        if self._folder:
            self._folder.close()
        self._server = self._folder = None

    def _command(self, ports: Sequence[int]) -> list[str | Path]:
        clients, peers = (f"http://127.0.0.1:{port}" for port in ports)
        return [
            self.binaries.etcd,
            f"--data-dir={self.data}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
            "--quota-backend-bytes=8589934592",  # enough for the largest benchmark
            "--log-level=error",
        ]

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.ports[0], timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == HTTPStatus.OK
        except http.client.HTTPException:
            return False
        finally:
            connection.close()
