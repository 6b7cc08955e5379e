import subprocess
import sys

import pytest

from localup import binaries
from localup.binaries import MODULE, find_go, pinned_version
from localup.processes import StepError
from tests.waiting import LIMIT_SECONDS


def fake_go(folder, *, version="go1.99.1", build='echo program > "$out"'):
    """Install a fake Go at the start of PATH."""
    program = folder / "tools" / "go"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(
        f"""#!/bin/sh
if [ "$1" = version ]; then echo "go version {version} linux/amd64"; exit 0; fi
if [ "$1" = list ]; then echo example/package; exit 0; fi
while [ "$1" != -o ]; do shift; done
folder=$2
shift 2
for package in "$@"; do
  case "$package" in *etcd*) out=${{folder}}server;; *) out=$folder${{package##*/}};; esac
  echo "$package" >&2
  {build}
done
"""
    )
    program.chmod(0o755)
    return program.parent


@pytest.fixture
def ground(tmp_path, monkeypatch):
    monkeypatch.setenv("VOLCANO_GLOBAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:/usr/bin:/bin")
    return tmp_path


@pytest.mark.parametrize("file", ["go.mod", "go.sum", "controllers/main.go"])
def test_other_pin_changes_the_key(file, tmp_path, monkeypatch):
    before = binaries.build_key("go1.26.1")
    (tmp_path / "controllers").mkdir()
    for name in ("go.mod", "go.sum", "controllers/main.go"):
        (tmp_path / name).write_text((MODULE / name).read_text())
    (tmp_path / file).write_text((MODULE / file).read_text() + "\n")
    monkeypatch.setattr(binaries, "MODULE", tmp_path)
    assert binaries.build_key("go1.26.1") != before


@pytest.mark.parametrize("version", ["go1.25.9", "go1.3", "nonsense"])
def test_an_old_go_is_replaced_by_the_pinned_one(ground, version):
    fake_go(ground, version=version)
    assert find_go().program is None
    assert find_go().version == f"go{pinned_version()}"


def test_programs_are_built_once_and_nothing_else_is_left(ground):
    fake_go(ground)
    built = binaries.ensure_binaries(say=print)
    assert built.apiserver.read_text() == "program\n"
    assert sorted(path.name for path in (ground / "cache").iterdir()) == ["bin", "build.lock"]
    assert sorted(path.name for path in built.folder.iterdir()) == ["controllers", "etcd", "kube-apiserver"]
    fake_go(ground, build="exit 1")
    assert binaries.ensure_binaries(say=print) == built


def test_failed_build_shows_the_compiler_output(ground):
    fake_go(ground, build='echo "no space left on device" >&2; exit 1')
    with pytest.raises(StepError, match=r"(?s)building control-plane failed.*no space left on device.*try again"):
        binaries.ensure_binaries(say=print)
    assert not list((ground / "cache" / "bin").glob("*/*"))


def test_an_interrupted_build_leaves_no_compiler_and_no_files(ground):
    fake_go(ground, build='echo $$ > "$out.pid"; echo half > "$out"; exec sleep 1000')
    program = subprocess.Popen([sys.executable, "-m", "localup", "binaries"], stdout=subprocess.PIPE, text=True)
    pid_file = ground / "cache" / "build" / "programs-control-plane" / "server.pid"
    while not (pid_file.exists() and pid_file.read_text()):
        assert program.poll() is None
    compiler = int(pid_file.read_text())
    program.terminate()
    program.communicate(timeout=LIMIT_SECONDS)
    assert program.returncode != 0
    assert subprocess.run(["ps", "-p", str(compiler)], stdout=subprocess.DEVNULL, check=False).returncode == 1
    assert sorted(path.name for path in (ground / "cache").iterdir()) == ["bin", "build.lock"]
    assert not list((ground / "cache" / "bin").glob("*/*"))


def install(folder, **versions):
    """Install programs that print a version."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in versions.items():
        program = folder / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\necho '{text}'\n")
        program.chmod(0o755)


def test_installed_programs_are_used_instead_of_a_build(ground, monkeypatch):
    fake_go(ground)
    install(ground / "assets", etcd="etcd Version: 3.99.0", kube_apiserver="Kubernetes v1.99.0")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(ground / "assets"))
    texts = []
    built = binaries.ensure_binaries(say=texts.append)
    assert built.etcd.resolve() == ground / "assets" / "etcd"
    assert built.apiserver.resolve() == ground / "assets" / "kube-apiserver"
    assert built.controllers.read_text() == "program\n"
    assert texts == ["building controllers once; this takes 2 to 4 minutes on two idle cores"]


def test_old_installed_programs_are_not_used(ground, monkeypatch):
    fake_go(ground)
    install(ground / "tools", etcd="etcd Version: 3.4.0", kube_apiserver="Kubernetes v1.28.0")
    texts = []
    built = binaries.ensure_binaries(say=texts.append)
    assert built.etcd.read_text() == built.apiserver.read_text() == "program\n"
    assert [text for text in texts if text.startswith("not used: ")] == texts[:2]
    assert texts[1].endswith("kube-apiserver, because its version is unknown or older than 1.36")
