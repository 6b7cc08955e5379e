"""Tests the image: its contents are locked and reproducible, and it runs unprivileged on a read-only tree."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.chart import sandbox
from tests.chart.pods import ENVIRONMENT
from tests.image.tree import ROOT, build_tree, build_wheel

DOCKERFILE = (ROOT / "Dockerfile").read_text()
#: Stages, each of which begins with FROM.
STAGES = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
PROCESSES = ("webhook", "controller", "console", "certs", "install", "controller.cli")


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    return build_tree(tmp_path_factory.mktemp("image") / "tree")


def test_tc5_wheel_is_reproducible(tmp_path):
    first, second = build_wheel(tmp_path / "first"), build_wheel(tmp_path / "second")
    assert first.read_bytes() == second.read_bytes()


def test_wheel_contains_only_runtime_files(tmp_path):
    names = zipfile.ZipFile(build_wheel(tmp_path / "wheel")).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"certs", "console", "controller", "install", "webhook"}
    assert not [name for name in names if re.search(r"(^|/)(tests?/|test_|conftest)", name) or name.endswith(".pyc")]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-build.txt", "requirements-dev.txt"])
def test_tc5_requirements_are_pinned_with_hashes(name):
    text = (ROOT / name).read_text()
    pins = re.split(r"\n(?=\S)", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).strip())
    assert pins
    for pin in pins:
        assert re.match(r"[A-Za-z0-9._-]+==\S+", pin), pin
        assert "--hash=sha256:" in pin, pin


def test_tc5_build_installs_only_locked_requirements():
    installs = [line for line in DOCKERFILE.replace("\\\n", " ").split("&&") if "pip install" in line]
    assert len(installs) == 3
    for line in installs:
        assert "--require-hashes" in line or ("--no-deps" in line and "/wheel/" in line)
    assert not re.search(r"\b(curl|wget|apt-get|apk|git|ADD)\b", DOCKERFILE)


def test_every_stage_starts_from_the_base_argument():
    assert re.search(r"^ARG BASE=", DOCKERFILE, re.MULTILINE)
    assert [stage.split()[0] for stage in STAGES] == ["${BASE}", "${BASE}"]


def test_last_stage_runs_no_command_and_is_unprivileged():
    last = STAGES[-1]
    assert not re.search(r"^RUN ", last, re.MULTILINE), "what is run there may leave a compiler behind"
    assert re.search(r"^USER 65532:65532$", last, re.MULTILINE)


def test_build_context_matches_dockerignore():
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    build = STAGES[0]
    copied = {name for line in re.findall(r"^COPY (.+)$", build, re.MULTILINE) for name in line.split()[:-1]}
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize("process", PROCESSES)
def test_process_starts_from_the_image_tree(tree, process):
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("*")}
    ended = subprocess.run(
        [sys.executable, "-I", "-c", _START, str(tree), process],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
    )
    assert ended.returncode == 0, ended.stderr
    assert "usage" in ended.stdout.lower()
    assert {path: path.stat().st_mtime_ns for path in tree.rglob("*")} == before


def test_command_of_the_image_is_the_command_line(tree):
    (command,) = re.findall(r'^CMD \["([^"]+)", "--help"\]$', STAGES[-1], re.MULTILINE)
    script = tree / "bin" / command
    environment = {"PYTHONPATH": str(tree)}
    ended = subprocess.run(
        [sys.executable, script, "--help"], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.partition(" [")[0]) == (0, "Usage: volcano-global"), ended.stderr
    assert os.access(script, os.X_OK)


@pytest.mark.skipif(sandbox.reason_not_possible() is not None, reason=str(sandbox.reason_not_possible()))
def test_tc4_process_starts_unprivileged_and_read_only(tree, tmp_path):
    box = sandbox.Sandbox(tmp_path / "pod", tree)
    starts = " && ".join(f"python -m {process} --help" for process in PROCESSES)
    script = f"id -u; touch /here {sandbox.IMAGE}/here; {starts}"
    log = tmp_path / "log"
    code = box.start(["sh", "-c", script], mounts={}, environment=ENVIRONMENT, log=log).wait(60)
    box.close()
    said = log.read_text()
    assert code == 0, said
    assert said.startswith(f"{sandbox.USER}\n")
    assert said.count("Read-only file system") == 2
    assert said.lower().count("usage: ") == len(PROCESSES)


#: As in the image: only installed packages, without the environment of the tests.
_START = """
import runpy, sys
tree, process = sys.argv[1:]
sys.path[:] = [tree, *(folder for folder in sys.path if "site-packages" not in folder)]
sys.dont_write_bytecode = True
sys.argv = [process, "--help"]
runpy.run_module(process, run_name="__main__", alter_sys=True)
"""
