import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from localup.folders import RunFolder, cache_folder, exclusive


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        pytest.param({"VOLCANO_GLOBAL_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a", id="named"),
        pytest.param({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/volcano-global", id="caches"),
        pytest.param({"HOME": "/c"}, "/c/.cache/volcano-global", id="home"),
        pytest.param({"VOLCANO_GLOBAL_CACHE": "", "HOME": "/c"}, "/c/.cache/volcano-global", id="empty-is-unset"),
    ],
)
def test_cache_folder_is_the_first_configured_one(environment, folder):
    assert cache_folder(environment) == Path(folder)


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}])
def test_cache_folder_exists_without_a_home(environment):
    assert cache_folder(environment).is_absolute()


def test_waiting_for_a_held_lock_is_reported(tmp_path):
    lock = tmp_path / "folder" / "lock"
    with (
        exclusive(lock, waiting=pytest.fail),
        # The second holder would block forever, so the callback before the wait ends this test.
        pytest.raises(KeyboardInterrupt),
        exclusive(lock, waiting=interrupted),
    ):
        pass


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("temporary")
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
    assert left.stat().st_mode & 0o077 == 0
    folder = RunFolder()
    folder.open()
    folder.close()
    assert not left.exists()
