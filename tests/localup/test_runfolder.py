import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from localup.runfolder import RunFolder, sweep


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_closed_folder_is_gone():
    folder = RunFolder.open()
    (folder.path / "data").write_text("x")
    folder.close()
    assert not folder.path.exists()


def test_only_we_can_read_it():
    folder = RunFolder.open()
    assert folder.path.stat().st_mode & 0o077 == 0
    folder.close()


def test_a_folder_in_use_is_left_alone():
    folder = RunFolder.open()
    sweep()
    assert folder.path.exists()
    folder.close()


def test_what_a_killed_run_left_is_removed_by_the_next(temporary):
    code = "from localup.runfolder import RunFolder; print(RunFolder.open().path, flush=True); input()"
    run = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"TMPDIR": str(temporary)}
    )
    left = Path(run.stdout.readline().decode().strip())
    run.kill()
    run.communicate()
    assert left.exists()
    RunFolder.open().close()
    assert not left.exists()
