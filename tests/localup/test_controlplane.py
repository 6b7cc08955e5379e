import http.client
import ssl
import subprocess
import sys
import time
import uuid

import pytest

from localup.api import Api, ApiError
from localup.apply import wait_until
from localup.binaries import kubernetes_version
from localup.managed_process import Server
from localup.processes import ProcessError
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


def listens(port):
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=1)
    try:
        connection.connect()
    except ConnectionRefusedError:
        return False
    except ssl.SSLError:
        return True
    finally:
        connection.close()
    return True


@pytest.fixture(scope="module")
def second(fresh_control_plane):
    """Yield another control plane on the same store that tests may kill."""
    return fresh_control_plane(controllers=False, audit=True)


def test_api_server_has_the_pinned_version(control_plane):
    assert control_plane.admin.get("/version")["gitVersion"] == kubernetes_version()


def test_unknown_token_is_rejected(control_plane):
    with (
        Api(control_plane.url, ca=control_plane.ca, token="guessed") as api,
        pytest.raises(ApiError, match="401"),
    ):
        api.get("/version")


def test_other_ca_is_not_trusted(control_plane, second):
    with (
        Api(control_plane.url, ca=second.ca, token=control_plane.token("admin")) as api,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        api.get("/version")


def test_deleted_namespace_deletes_its_bindings(control_plane, namespace):
    binding = {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {"name": "job-job"},
        "spec": {"resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "job"}},
    }
    control_plane.admin.create(f"/apis/work.karmada.io/v1alpha2/namespaces/{namespace}/resourcebindings", binding)
    control_plane.admin.delete(f"/api/v1/namespaces/{namespace}")
    wait_until(lambda: not exists(control_plane.admin, f"/api/v1/namespaces/{namespace}"), f"{namespace} gone")


def test_owned_objects_are_garbage_collected(control_plane, namespace):
    jobs = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs"
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "owner"}, "spec": {}}
    uid = control_plane.admin.create(jobs, job)["metadata"]["uid"]
    owner = {key: job[key] for key in ("apiVersion", "kind")} | {"name": "owner", "uid": uid}
    owned = {"metadata": {"name": "owned", "ownerReferences": [owner]}}
    control_plane.admin.create(CONFIG_MAPS.format(namespace), owned)
    control_plane.admin.delete(f"{jobs}/owner")
    path = f"{CONFIG_MAPS.format(namespace)}/owned"
    wait_until(lambda: not exists(control_plane.admin, path), "the owned object gone")


def test_second_api_server_has_separate_objects(control_plane, namespace, second):
    assert exists(control_plane.admin, f"/api/v1/namespaces/{namespace}")
    assert not exists(second.admin, f"/api/v1/namespaces/{namespace}")


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


def test_writes_are_audited_if_enabled(second):
    name = named()
    second.admin.create(CONFIG_MAPS.format("default"), {"metadata": {"name": name}})
    wait_until(lambda: name in second.audit_log.read_text(), "the write in the audit log")


def test_invalid_flag_is_reported_with_the_server_log(fresh_control_plane):
    began = time.monotonic()
    with pytest.raises(ProcessError, match=r"(?s)kube-apiserver ended unexpectedly.*no-such-flag"):
        fresh_control_plane(controllers=False, flags=["--no-such-flag"])
    assert time.monotonic() - began < 10


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
    port, pid, folder = plane.server.ports[0], plane.server.pid, plane.folder
    assert listens(port)
    plane.stop()
    assert not listens(port)
    assert not folder.exists()
    assert subprocess.run(["ps", "-p", str(pid)], stdout=subprocess.DEVNULL, check=False).returncode == 1
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
    wait_until(lambda: str(tmp_path) not in _commands(), "no process of it left")
    assert end == "kill" or list(tmp_path.iterdir()) == []


def _commands():
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
