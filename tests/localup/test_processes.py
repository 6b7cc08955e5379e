import signal
import subprocess
import sys
import time

import pytest

from localup.processes import ChildProcess, ProcessError, spawn, terminate


def lives(pid):
    """Return whether *pid* runs and is no zombie."""
    answer = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.strip() not in {"", "Z", "Z+", "Zs"}


def gone_soon(pid):
    ends = time.monotonic() + 10
    while lives(pid) and time.monotonic() < ends:
        time.sleep(0.01)
    return not lives(pid)


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
    assert gone_soon(child)


def test_all_processes_of_the_session_end(tmp_path):
    log = tmp_path / "log"
    process = spawn(["sh", "-c", "sleep 1000 & echo $!; wait"], log=log)
    while not log.exists() or not log.read_text():
        time.sleep(0.01)
    terminate(process, grace_seconds=1)
    assert gone_soon(int(log.read_text()))


def test_process_that_ignores_sigterm_is_killed(tmp_path):
    log = tmp_path / "log"
    process = spawn([sys.executable, "-c", DEAF], log=log)
    while not log.exists() or not log.read_text():
        time.sleep(0.01)
    terminate(process, grace_seconds=0.1)
    assert process.returncode == -signal.SIGKILL


DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(1000)
"""


def test_ended_process_is_reported_with_its_last_lines(tmp_path):
    service = ChildProcess("etcd", tmp_path / "log")
    service.start(["sh", "-c", "echo the disk is gone; exit 3"])
    gone_soon(service.pid)
    with pytest.raises(ProcessError, match=r"(?s)etcd ended unexpectedly \(exit code 3\).*the disk is gone"):
        service.check()
    service.stop()


def test_missing_program_is_named(tmp_path):
    with pytest.raises(ProcessError, match="cannot start /no/such/etcd"):
        spawn(["/no/such/etcd"], log=tmp_path / "log")
