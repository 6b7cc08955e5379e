"""Packages the command line as a plugin of Krew, kubectl's plugin manager: an archive and its manifest."""

import hashlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
from pathlib import Path

import yaml

PLUGIN = "volcano-global"
_PROGRAM = "kubectl-volcano_global"
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

#: The libraries are next to the program and compiled for one minor version of Python.
_LAUNCHER = f"""#!/usr/bin/env python{_PYTHON}
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from controller.cli.__main__ import main

main()
"""

_MANIFEST = Path(__file__).with_name("krew.yaml")


class InstallationError(Exception):
    """The libraries of the plugin cannot be installed."""


def package(source: Path, destination: Path, *, uri: str) -> Path:
    """Write archive and manifest of *source* into *destination*, for Krew to load from *uri*; return the manifest."""
    destination.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        content = Path(folder)
        install = "--no-deps", "--no-compile", "--target", content / "lib"
        _pip("install", *install, "--require-hashes", "--requirement", source / "requirements.txt")
        _pip("install", *install, "--no-build-isolation", "--upgrade", source)
        shutil.rmtree(content / "lib" / "bin", ignore_errors=True)
        shutil.copy(source / "LICENSE", content)
        version = tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"]
        return pack(content, destination, version=version, uri=uri)


def _pip(*arguments: str | Path) -> None:
    """Run pip, which prints its problems; raise `InstallationError` if it fails."""
    options = "--quiet", "--disable-pip-version-check"
    try:
        subprocess.run([sys.executable, "-m", "pip", *arguments, *options], check=True)
    except subprocess.CalledProcessError as error:
        raise InstallationError(
            f"pip cannot install the libraries of the plugin (exit code {error.returncode})"
        ) from error


def pack(content: Path, destination: Path, *, version: str, uri: str) -> Path:
    """Write the archive of the folder *content* with the program, and its manifest; return the manifest."""
    program = content / _PROGRAM
    program.write_text(_LAUNCHER)
    program.chmod(0o755)
    system, _, machine = sysconfig.get_platform().rpartition("-")
    platform = {"os": system.partition("-")[0], "arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)}
    archive = destination / f"{PLUGIN}-{version}-{platform['os']}-{platform['arch']}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(content.iterdir()):
            tar.add(path, path.name)
    manifest = yaml.safe_load(_MANIFEST.read_text().format(python=_PYTHON, version=version))
    manifest["spec"]["platforms"][0] |= {
        "selector": {"matchLabels": platform},
        "uri": f"{uri.rstrip('/')}/{archive.name}",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
    }
    path = destination / f"{PLUGIN}.yaml"
    path.write_text(yaml.safe_dump(manifest, sort_keys=False))
    return path
