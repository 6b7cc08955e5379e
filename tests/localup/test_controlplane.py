import subprocess
import sys
import uuid

import pytest

from localup.api import ApiError
from localup.apply import wait_until
from localup.processes import Server
from tests.localup.running import commands_in, listens
from tests.waiting import LIMIT_SECONDS

CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"


def named(prefix="object"):
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def exists(api, path):
    try:
        api.get(path)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True


@pytest.fixture(scope="module")
def second(fresh_control_plane):
    """Yield another control plane on the same store that tests may kill."""
    return fresh_control_plane(controllers=False, audit=True)


@pytest.mark.parametrize("end", ["kill", "in order"])
def test_a_restart_keeps_data_and_address(second, end):
    name, url = named(), second.url
    second.admin.create(CONFIG_MAPS.format("default"), {"metadata": {"name": name}})
    if end == "kill":
        second.kill()
        with pytest.raises(OSError, match="refused"):
            second.admin.get("/version")
    second.restart()
    assert second.url == url
    assert exists(second.admin, f"{CONFIG_MAPS.format('default')}/{name}")


def test_used_port_is_replaced(tmp_path):
    server = Server("server", tmp_path / "log")
    tried = []

    def command(ports):
        tried.extend(ports)
        busy = "echo bind: address already in use; exit 1"
        return ["sh", "-c", busy if len(tried) == 1 else "sleep 1000"]

    server.serve(command, lambda: len(tried) > 1)
    assert server.ports == tried[1:]
    server.close()


def test_stopping_leaves_no_process_no_port_and_no_file(etcd, fresh_control_plane):
    plane = fresh_control_plane()
    port, folder = plane.server.ports[0], plane.folder
    assert listens(port)
    plane.stop()
    assert not listens(port)
    assert not folder.exists()
    assert not commands_in(folder)
    assert etcd.server.pid


@pytest.mark.usefixtures("binaries")
@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_control_plane_of_the_command_ends_with_it(end, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    run = subprocess.Popen([sys.executable, "-m", "localup", "up"], stdout=subprocess.PIPE, text=True)
    export = run.stdout.readline()
    assert export.startswith(f"export KUBECONFIG={tmp_path}")
    getattr(run, end)()
    run.communicate(timeout=LIMIT_SECONDS)
    wait_until(lambda: not commands_in(tmp_path), "no process of it left")
    assert end == "kill" or list(tmp_path.iterdir()) == []
