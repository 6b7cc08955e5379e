import socket
import subprocess
import sys

import pytest

from localup import ports


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VOLCANO_GLOBAL_CACHE", str(tmp_path))


@pytest.fixture
def narrow(monkeypatch):
    """Restrict the port range to two ports."""
    first = ports.claim()
    ports.release(first)
    monkeypatch.setattr(ports, "FIRST", first)
    monkeypatch.setattr(ports, "LAST", first + 1)
    return first


@pytest.fixture
def claimed():
    taken = []

    def take():
        taken.append(ports.claim())
        return taken[-1]

    yield take
    for port in taken:
        ports.release(port)


def test_used_port_is_not_claimed(narrow, claimed):
    with socket.create_server(("127.0.0.1", narrow)):
        assert claimed() == narrow + 1


@pytest.mark.usefixtures("narrow")
def test_exhausted_ports_are_reported(claimed):
    claimed()
    claimed()
    with pytest.raises(ports.NoPortError, match="no free port"):
        ports.claim()


def test_claim_of_an_ended_process_is_released(narrow, claimed):
    code = f"from localup import ports; ports.FIRST = ports.LAST = {narrow}; print(ports.claim(), flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline() == f"{narrow}\n".encode()
    assert claimed() == narrow + 1
    other.kill()
    other.communicate()
    assert claimed() == narrow
