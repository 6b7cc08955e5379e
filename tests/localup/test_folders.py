import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from localup import folders
from localup.folders import RunFolder, cache_folder, exclusive


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        pytest.param({"VOLCANO_GLOBAL_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a", id="named"),
        pytest.param({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/volcano-global", id="caches"),
        pytest.param({"HOME": "~"}, "~/.cache/volcano-global", id="home"),
        pytest.param({"VOLCANO_GLOBAL_CACHE": "", "HOME": "~"}, "~/.cache/volcano-global", id="empty-is-unset"),
    ],
)
def test_cache_folder_is_the_first_configured_one(environment, folder, tmp_path):
    given = {name: text.replace("~", str(tmp_path)) for name, text in environment.items()}
    assert cache_folder(given) == Path(folder.replace("~", str(tmp_path)))


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}])
def test_cache_folder_exists_without_a_home(environment):
    assert cache_folder(environment).is_absolute()


@pytest.mark.parametrize("is_account", [True, False])
def test_unusable_home_is_replaced(is_account, tmp_path, monkeypatch):
    """The home folder of the account is used, or the one for temporary files."""
    (tmp_path / "file").touch()
    unusable, home = tmp_path / "file" / "home", tmp_path / "home"
    monkeypatch.setattr(folders, "_home_of_the_account", lambda: str(home if is_account else unusable))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    folder = cache_folder({"HOME": str(unusable)})
    assert folder.relative_to(tmp_path).parts[0] == ("home" if is_account else "temporary")
    with exclusive(folder / "lock", waiting=pytest.fail):
        assert folder.is_dir()


@pytest.mark.process
def test_unusable_folder_is_reported_in_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    environment = {**os.environ, "VOLCANO_GLOBAL_CACHE": str(tmp_path / "file"), "PATH": "/nonexistent"}
    command = [sys.executable, "-m", "localup", "binaries"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 1
    assert ended.stderr.startswith("localup: [Errno ")
    assert "Traceback" not in ended.stderr


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
