"""Random requests to the in-memory API server and to kube-apiserver: equal answers, field owners and watch events."""

import http.client
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from localup.apply import wait_until
from localup.controlplane import ControlPlane
from tests.deterministic.comparison import MemorySide, RealSide, Sequences
from tests.deterministic.worlds import ROOTS, THINGS_CRD, content_type


class RealServer:
    """Connections to a real server, as the client ``unknown``."""

    def __init__(self, plane: ControlPlane) -> None:
        address = urlsplit(plane.url)
        self._address = address.hostname or "", address.port
        self._context = ssl.create_default_context(cadata=plane.ca)
        authorization = f"Bearer {plane.token('admin')}"
        self._headers = {"Authorization": authorization, "User-Agent": "unknown", "Accept": "application/json"}
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(*self._address, context=self._context, timeout=60)

    def close(self) -> None:
        self._connection.close()

    def send(self, method: str, path: str, body: Any, kind: str, query: dict[str, str]) -> tuple[int, Any]:
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body)
        headers = self._headers | {"Content-Type": content_type(kind)}
        self._connection.request(method, f"{path}?{urlencode(query)}", raw, headers)
        response = self._connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text.startswith(b"{") else text.decode()

    def watch(self, path: str, query: dict[str, str]) -> tuple[int, list[Any]]:
        """Return the events of a watch until the server ends it; each has a connection of its own."""
        with closing(self._connect()) as connection:
            connection.request("GET", f"{path}?{urlencode({'watch': 'true', **query})}", headers=self._headers)
            response = connection.getresponse()
            return response.status, [json.loads(line) for line in response.read().splitlines()]


@pytest.fixture(scope="module")
def real(fresh_control_plane) -> Iterator[RealServer]:
    plane = fresh_control_plane(controllers=False)
    plane.admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", THINGS_CRD)
    plane.admin.create("/api/v1/namespaces", {"metadata": {"name": "ns"}})
    server = RealServer(plane)
    wait_until(lambda: server.send("GET", ROOTS["things"], None, "json", {})[0] == 200, "things to be served")
    yield server
    server.close()


def sequences(server: RealServer) -> Sequences:
    return Sequences(lambda: (MemorySide(), RealSide(server.send, server.watch)))


@pytest.mark.parametrize("seed", [1, 2])
def test_random_requests_have_equal_answers_and_events(real, seed):
    difference = sequences(real).compare(seed, 500)
    assert difference is None, difference


@pytest.mark.long
def test_100000_random_requests_have_equal_answers(real, capsys):
    started = time.monotonic()
    compared, differences = sequences(real), []
    for seed in range(100, 300):
        if difference := compared.compare(seed, 500):
            differences.append(difference)
        seconds = time.monotonic() - started
        with capsys.disabled():
            print(f"{compared}, {len(differences)} differences, {seconds:.0f} s")  # noqa: T201 -- progress
            if difference:
                print(difference)  # noqa: T201 -- progress
    assert not differences, "\n".join(differences)
