import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from localup.folders import RunFolder


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def opened() -> RunFolder:
    folder = RunFolder()
    folder.open()
    return folder


def test_folder_has_mode_0700():
    folder = opened()
    assert folder.path.stat().st_mode & 0o077 == 0
    folder.close()


@pytest.mark.parametrize("made", ["", "folder", "folder and lock"])
def test_partially_created_folder_is_deleted(made, monkeypatch):
    folder = RunFolder()
    step = {"": (Path, "mkdir"), "folder": (os, "open"), "folder and lock": (fcntl, "flock")}[made]
    with monkeypatch.context() as patch:
        patch.setattr(*step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            folder.open()
    assert folder.path.exists() == bool(made)
    folder.close()
    assert not folder.path.exists()


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_folder_of_a_killed_run_is_deleted_by_the_next(temporary):
    code = (
        "from localup.folders import RunFolder; folder = RunFolder(); folder.open()\n"
        "print(folder.path, flush=True); input()"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"TMPDIR": str(temporary)}
    )
    left = Path(run.stdout.readline().decode().strip())
    run.kill()
    run.communicate()
    assert left.exists()
    opened().close()
    assert not left.exists()
