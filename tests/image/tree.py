"""Builds the contents of the image in a folder like the Dockerfile: locked requirements and the wheel.

The requirements are cached by their hash; the wheel is built each time.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from localup.folders import cache_folder, exclusive

ROOT = Path(__file__).parents[2]
EPOCH = "1577836800"
_PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def build_tree(folder: Path) -> Path:
    """Return *folder* with the contents of the image, read-only."""
    shutil.copytree(_requirements(), folder, symlinks=True)
    wheel = build_wheel(folder.parent / f"{folder.name}-wheel")
    _run([*_PIP, "install", "--no-deps", "--no-compile", "--upgrade", "--target", folder, wheel])
    _run([sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", folder])
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222 | 0o444 | (0o111 if path.is_dir() else 0))
    return folder


def build_wheel(folder: Path) -> Path:
    """Return the wheel, built in *folder* from the sources only."""
    source = folder / "source"
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in ("certs", "console", "controller", "install", "webhook"):
        shutil.copytree(ROOT / name, source / name, ignore=unwanted)
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copyfile(ROOT / name, source / name)
    _run([*_PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, "."], cwd=source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _requirements() -> Path:
    """Return a folder with the locked requirements, downloaded if they are not cached."""
    text = (ROOT / "requirements.txt").read_bytes() + sys.version.encode()
    cached = cache_folder() / "tree" / hashlib.sha256(text).hexdigest()[:16]
    if not cached.exists():
        with exclusive(cache_folder() / "tree.lock", waiting=lambda: None):
            if not cached.exists():
                unfinished = Path(tempfile.mkdtemp(dir=_create_folder(cached.parent)))
                locked = ["--require-hashes", "--only-binary", ":all:", "--requirement", ROOT / "requirements.txt"]
                _run([*_PIP, "install", "--no-compile", "--target", unfinished, *locked])
                unfinished.rename(cached)
    return cached


def _create_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run(command: list[str | Path], *, cwd: Path | None = None) -> None:
    environment = os.environ | {"SOURCE_DATE_EPOCH": EPOCH, "PIP_ROOT_USER_ACTION": "ignore"}
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
