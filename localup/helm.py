"""Builds Helm once from its Go module and caches it; only the chart's tests need it."""

import hashlib
import platform
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from localup.binaries import MODULE as _MODULE
from localup.binaries import Go, Source, compile_program, find_go
from localup.folders import cache_folder, exclusive
from localup.processes import StepError

MODULE: Final = _MODULE / "helm"
_PACKAGE: Final = "helm.sh/helm/v4/cmd/helm"


def ensure_helm(say: Callable[[str], None] = print) -> Path:
    """Return the path of Helm; if missing, it is built first, which takes about two minutes."""
    go = find_go()
    program = cache_folder() / "bin" / build_key(go.version) / "helm"
    if not program.exists():
        with exclusive(cache_folder() / "build.lock", waiting=lambda: say("waiting for another process that builds")):
            if not program.exists():
                say("building Helm once; this takes about 2 minutes on two cores")
                _build(program, go)
    return program


def build_key(go_version: str) -> str:
    """Return the folder name for the current pins, flags and Go version."""
    parts = [(MODULE / name).read_bytes() for name in ("go.mod", "go.sum")]
    parts += [repr((_flags(), go_version, platform.system(), platform.machine())).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def helm_version() -> str:
    """Return the pinned version, such as ``v4.3.1``."""
    found = re.search(r"^\s*(?:require )?helm\.sh/helm/v4 (v\S+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise StepError(f"{MODULE / 'go.mod'} does not pin helm.sh/helm/v4; restore the file from the repository")
    return found[1]


def _build(program: Path, go: Go) -> None:
    scratch = cache_folder() / "build-helm"
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        aside = compile_program(_PACKAGE, Source(MODULE, "helm", _flags()), go=go, scratch=scratch)
        program.parent.mkdir(parents=True, exist_ok=True)
        aside.rename(program)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _flags() -> list[str]:
    stamp = f"-X helm.sh/helm/v4/internal/version.version={helm_version()}"
    return ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {stamp}"]
