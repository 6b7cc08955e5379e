import os
import socket

import pytest

from localup.api import ApiError
from localup.apply import create_namespace, wait_until
from localup.managed_process import ManagedProcess, ProcessOptions, run_to_completion
from localup.processes import ProcessError
from localup.stack import Stack

BINDINGS = "/apis/work.karmada.io/v1alpha2/namespaces/team/resourcebindings"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/team/jobs"
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@pytest.fixture(scope="module")
def plane(fresh_control_plane):
    plane = fresh_control_plane()
    create_namespace(plane.admin, "team")
    return plane


@pytest.fixture(scope="module")
def empty(fresh_control_plane):
    return fresh_control_plane()


@pytest.fixture(scope="module")
def stack(plane):
    with Stack(plane, controller=False) as stack:
        yield stack


def binding(name):
    resource = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": name}
    return {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {"name": f"{name}-job"},
        "spec": {"resource": resource},
    }


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def listens(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_bindings_are_suspended_after_the_start(plane, stack):
    with plane.client("karmada") as karmada:
        stored = karmada.create(BINDINGS, binding("train"))
    assert stored["spec"]["suspension"] == {"scheduling": True}


def test_tenant_cannot_write_bindings_after_the_start(plane, stack):
    with plane.client("tenant") as tenant, pytest.raises(ApiError, match="only Karmada creates bindings"):
        tenant.create(BINDINGS, binding("forged"))


def test_killed_process_restarts_on_its_ports(plane, stack):
    before = stack.webhook.pid
    stack.webhook.kill()
    assert stack.webhook.pid is None
    with plane.client("karmada") as karmada:
        with pytest.raises(ApiError, match="failed calling webhook"):
            karmada.create(BINDINGS, binding("early"))
        stack.webhook.start()
        assert karmada.create(BINDINGS, binding("late"))["spec"]["suspension"] == {"scheduling": True}
    assert stack.webhook.pid not in {None, before}


def test_stand_in_works_after_a_restart(stack):
    stack.karmada.kill()
    stack.start_karmada()
    assert stack.karmada.output.count("all lists applied") == 1
    assert stack.log("karmada").read_text().count("all lists applied") > 1


def test_ended_process_is_named_with_its_last_lines(stack):
    os.kill(stack.karmada.pid, 9)
    with pytest.raises(ProcessError, match=r"karmada ended unexpectedly .* last lines"):
        wait_until(stack.check, "noticed")
    stack.start_karmada()
    stack.check()


def test_nothing_is_left_when_it_has_stopped(empty):
    with Stack(empty, controller=False) as stack:
        pids = [part.pid for part in stack.parts if part.pid]
        port = int(stack.webhook_url.rpartition(":")[2])
        assert listens(port)
    assert not listens(port)
    assert not any(is_running(pid) for pid in pids)
    assert empty.admin.get(HOOKS)["items"] == []


def test_failed_start_is_reported_and_cleaned_up(empty):
    stack = Stack(empty, controller=False, options={"webhook": ProcessOptions(flags=("--port", "soon"))})
    with pytest.raises(ProcessError, match=r"(?s)webhook ended unexpectedly .*--port"):
        stack.start()
    assert not any(part.pid for part in stack.parts)
    assert empty.admin.get(HOOKS)["items"] == []


def test_options_of_an_unknown_process_are_rejected(plane):
    with pytest.raises(KeyError, match="unknown process scheduler; known: controller, karmada, webhook"):
        Stack(plane, options={"scheduler": ProcessOptions()})


def test_process_gets_its_environment(tmp_path):
    part = ManagedProcess(
        "probe",
        tmp_path / "log",
        command=lambda: ("-c", "import os, time; print(os.environ['CRASH_AT']); time.sleep(60)"),
        is_ready=lambda: (tmp_path / "log").read_text() == "third write\n",
        environment={"CRASH_AT": "third write"},
    )
    part.start()
    part.stop()


def test_failed_program_is_named_with_its_last_lines(tmp_path):
    with pytest.raises(ProcessError, match=r"(?s)certs failed \(exit code 3\).*no folder"):
        run_to_completion("certs", tmp_path / "log", ["-c", "import sys; print('no folder'); sys.exit(3)"])
