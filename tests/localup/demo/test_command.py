"""End-to-end tests of the demo as a process without a terminal."""

import os
import re
import signal
from pathlib import Path

import pytest

from localup.apply import wait_until
from tests.localup.demo.demo_process import demo_starter, read_until
from tests.localup.running import commands_in
from tests.waiting import LIMIT_SECONDS


@pytest.fixture
def demo(binaries, tmp_path):
    """Return a function that starts the demo with its own folder for temporary files."""
    with demo_starter(tmp_path) as start:
        yield start


def test_demo_runs_all_admissible_jobs(demo, tmp_path):
    process = demo()
    output = process.communicate()[0]
    assert process.returncode == 0, output
    assert "stand-in" in output.splitlines()[0]
    assert "\x1b" not in output
    assert "\r" not in output
    for name in ("torchrun-gang", "mpi-gang"):
        assert re.search(rf"ml/{name} .*suspended", output)
        assert re.search(rf"ml/{name} .*admitted +to member\d after", output)
        assert re.search(rf"ml/{name} .*running +on member\d, 3 pods", output)
        assert re.search(rf"ml/{name} .*finished +Completed after", output)
    assert re.search(r"team-b/train-\d+ +pending +InsufficientCapacity: ", output)
    for name, reason in (
        ("ops/old-report", "QueueClosed"),
        ("ops/rebuild-all", "ExceedsQueueLimit"),
        ("team-a/moonshot", "ExceedsEveryCluster"),
    ):
        assert re.search(rf"{name} +pending +{reason}: ", output)
        assert not re.search(rf"{name} +admitted", output)
    # Peak usage depends on the speed of the machine; the fair share does not.
    assert re.search(r"team-a +\d+ +1\d .*\n *team-b +\d+ +3\d ", output)
    assert "41 jobs have run; 3 stay pending as expected" in output
    for hyperjob, reason, parts in (
        ("ml/llm-training", "ExceedsEveryCluster", "onprem-1 16, onprem-2 8, cluster-b 8"),
        ("ml/llm-train-hyperjob", "ExceedsTotalCapacity", "cluster-a 32, cluster-b 32"),
        ("ml/llm-finetuning", "", "member1 8, member2 4"),
    ):
        count = parts.count(",") + 1
        assert re.search(rf"{hyperjob} +pending +{reason}", output) or not reason
        assert re.search(rf"{hyperjob} +split +in {count} parts: {parts}$", output, re.MULTILINE)
        assert re.search(rf"{hyperjob} +finished +Completed: {count} of {count} parts completed", output)
        assert f"HyperJob {hyperjob}: {count} parts were admitted in one plan" in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        pytest.param("stand-in", signal.SIGINT, id="at-first"),
        pytest.param("are ready", signal.SIGTERM, id="while-starting"),
        pytest.param("running", signal.SIGINT, id="while-running"),
    ],
)
def test_an_interrupted_demo_leaves_nothing(demo, tmp_path, number, moment):
    process = demo()
    read_until(process, moment)
    wait_until(lambda: commands_in(tmp_path), "child processes")
    process.send_signal(number)
    output = process.communicate(timeout=LIMIT_SECONDS)[0]
    assert process.returncode == 130
    assert output.endswith("interrupted; all processes and files were removed\n")
    wait_until(lambda: not commands_in(tmp_path), "all processes gone", seconds=2)
    assert list(tmp_path.iterdir()) == []


def test_ended_process_fails_the_demo_and_is_named(demo, tmp_path):
    process = demo()
    read_until(process, "running")
    (controller,) = [pid for pid, command in commands_in(tmp_path).items() if "-m controller " in command]
    os.kill(controller, signal.SIGKILL)
    output = process.communicate(timeout=LIMIT_SECONDS)[0]
    assert process.returncode == 1
    assert "localup: controller ended unexpectedly (exit code -9); its last lines:" in output
    assert "workload admitted" in output
    assert list(tmp_path.iterdir()) == []


def test_demo_beyond_its_time_limit_names_stuck_jobs(demo):
    process = demo("--seconds", "3")
    output = process.communicate(timeout=LIMIT_SECONDS)[0]
    assert process.returncode == 1
    _, limit, problems = output.partition("time limit reached after 3 s")
    assert limit
    # How far it has come depends on the machine.
    assert "team-a/train-01 " in problems
    assert "last lines of the log of " in problems


@pytest.mark.long
def test_kept_demo_prints_how_to_connect(demo, tmp_path):
    process = demo("--keep")
    read_until(process, "jobs have run")
    (line,) = [line for line in read_until(process, "export KUBECONFIG=") if "KUBECONFIG" in line]
    kubeconfig = Path(line.strip().partition("=")[2])
    assert kubeconfig.exists()
    process.send_signal(signal.SIGINT)
    assert "all processes and files were removed" in process.communicate(timeout=LIMIT_SECONDS)[0]
    assert process.returncode == 0
    assert not kubeconfig.exists()
    assert list(tmp_path.iterdir()) == []
