from pathlib import Path

import pytest

from localup.apply import create_namespace
from localup.processes import ProcessError, ProcessOptions, run_to_completion
from localup.stack import Stack
from tests.localup.running import listens

HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@pytest.fixture(scope="module")
def plane(fresh_control_plane):
    plane = fresh_control_plane()
    create_namespace(plane.admin, "team")
    return plane


@pytest.fixture(scope="module")
def empty(fresh_control_plane):
    return fresh_control_plane()


def test_nothing_is_left_when_it_has_stopped(empty):
    with Stack(empty, controller=False) as stack:
        pids = [part.pid for part in stack.parts if part.pid]
        port = int(stack.webhook_url.rpartition(":")[2])
        assert listens(port)
    assert not listens(port)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert empty.admin.get(HOOKS)["items"] == []


def test_failed_start_is_reported_and_cleaned_up(empty):
    stack = Stack(empty, controller=False, options={"webhook": ProcessOptions(flags=("--port", "soon"))})
    with pytest.raises(ProcessError, match=r"(?s)webhook ended unexpectedly .*--port"):
        stack.start()
    assert not any(part.pid for part in stack.parts)
    assert empty.admin.get(HOOKS)["items"] == []


def test_options_of_an_unknown_process_are_rejected(plane):
    with pytest.raises(KeyError, match="unknown process scheduler; known: console, controller, karmada, webhook"):
        Stack(plane, options={"scheduler": ProcessOptions()})


def test_failed_program_is_named_with_its_last_lines(tmp_path):
    with pytest.raises(ProcessError, match=r"(?s)certs failed \(exit code 3\).*no folder"):
        run_to_completion("certs", tmp_path / "log", ["-c", "import sys; print('no folder'); sys.exit(3)"])
