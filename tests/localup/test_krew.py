import hashlib
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from localup.krew import InstallationError, pack, package


def test_manifest_describes_the_archive(tmp_path):
    content = tmp_path / "content"
    (content / "lib").mkdir(parents=True)
    (content / "lib" / "module.py").write_text("x = 1\n")
    manifest = yaml.safe_load(pack(content, tmp_path, version="0.1.0", uri="https://example.com/a/").read_text())
    (platform,) = manifest["spec"]["platforms"]
    archive = tmp_path / platform["uri"].removeprefix("https://example.com/a/")
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == platform["sha256"]
    with tarfile.open(archive) as tar:
        program = tar.getmember(platform["bin"])
        assert program.mode & 0o111 == 0o111
        assert "lib/module.py" in tar.getnames()
    assert len(manifest["spec"]["shortDescription"]) <= 60


def test_other_files_of_the_destination_are_not_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)
    (tmp_path / "content").mkdir()
    manifest = package(Path(__file__).parents[2], tmp_path, uri="https://example.com")
    (archive,) = tmp_path.glob("*.tar.gz")
    assert set(tmp_path.iterdir()) == {tmp_path / "content", manifest, archive}


def test_failure_of_pip_is_one_sentence(tmp_path):
    with pytest.raises(InstallationError, match=r"pip cannot install the libraries of the plugin \(exit code 1\)"):
        package(tmp_path, tmp_path / "build", uri="https://example.com")
