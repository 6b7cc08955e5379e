import signal
import subprocess
import sys

import pytest

from localup.apply import wait_until
from localup.processes import ChildProcess, ProcessError, spawn, terminate


def lives(pid):
    """Return whether *pid* runs and is no zombie."""
    answer = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.strip()[:1] not in {"", "Z"}


def test_child_is_killed_with_its_parent(tmp_path):
    code = (
        "import time; from pathlib import Path; from localup.processes import spawn;"
        f"print(spawn(['sleep', '1000'], log=Path({str(tmp_path / 'log')!r})).pid, flush=True); time.sleep(1000)"
    )
    us = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    child = int(us.stdout.readline())
    assert lives(child)
    us.kill()
    us.communicate()
    wait_until(lambda: not lives(child), "the child ended")


def test_terminated_process_ends_with_its_children_by_force(tmp_path):
    log = tmp_path / "log"
    process = spawn(["sh", "-c", "trap '' TERM; sleep 1000 & echo $!; wait; sleep 1000"], log=log)
    wait_until(lambda: log.exists() and log.read_text().endswith("\n"), "a line")
    child = int(log.read_text())
    terminate(process, grace_seconds=0.1)
    assert process.returncode == -signal.SIGKILL
    wait_until(lambda: not lives(child), "the child ended")


def test_ended_process_is_reported_with_its_last_lines(tmp_path):
    service = ChildProcess("etcd", tmp_path / "log")
    service.start(["sh", "-c", "echo the disk is gone; exit 3"])
    wait_until(lambda: not lives(service.pid), "the service ended")
    with pytest.raises(ProcessError, match=r"(?s)etcd ended unexpectedly \(exit code 3\).*the disk is gone"):
        service.check()
    service.stop()


def test_missing_program_is_named(tmp_path):
    with pytest.raises(ProcessError, match="cannot start /no/such/etcd"):
        spawn(["/no/such/etcd"], log=tmp_path / "log")
