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
    """Leave two ports to choose from."""
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


def test_ports_lie_below_those_of_outgoing_connections(claimed):
    assert all(20000 <= claimed() < 32768 for _ in range(20))


def test_no_port_is_given_twice(claimed):
    assert len({claimed() for _ in range(50)}) == 50


def test_a_port_that_somebody_listens_on_is_not_given(narrow, claimed):
    with socket.create_server(("127.0.0.1", narrow)):
        assert claimed() == narrow + 1


@pytest.mark.usefixtures("narrow")
def test_when_all_ports_are_taken_it_says_so(claimed):
    claimed()
    claimed()
    with pytest.raises(ports.NoPortError, match="no free port"):
        ports.claim()


def test_a_port_claimed_by_another_run_is_given_when_that_has_ended(narrow, claimed):
    code = f"from localup import ports; ports.FIRST = ports.LAST = {narrow}; print(ports.claim(), flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline() == f"{narrow}\n".encode()
    assert claimed() == narrow + 1
    other.kill()
    other.communicate()
    assert claimed() == narrow
