"""A copy of the tree with a mistake in it, in which a test is run."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.mutants.catalogue import Mutant

ROOT = Path(__file__).parents[2]
_TREES = ("certs", "charts", "controller", "examples", "localup", "tests", "webhook")
_SECONDS = 180
_SAID = 6_000


class MutatedTree:
    """A copy of the tree, into which one mistake after the other is planted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("__pycache__", "benchmarks")
        for name in _TREES:
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        shutil.copytree(ROOT / "tests" / "benchmarks", folder / "tests" / "benchmarks")
        shutil.copy(ROOT / "pyproject.toml", folder)

    def plant(self, mutant: Mutant) -> None:
        """Make the mistake; whoever has changed the text since must say what the mistake is now."""
        file = self.folder / mutant.file
        text = (ROOT / mutant.file).read_text()
        if text.count(mutant.before) != 1:
            raise LookupError(
                f"mutant {mutant.name!r}: its text stands {text.count(mutant.before)} times in {file.name}"
            )
        file.write_text(text.replace(mutant.before, mutant.after))

    def weed(self, mutant: Mutant) -> None:
        """Undo the mistake."""
        shutil.copy(ROOT / mutant.file, self.folder / mutant.file)

    def trouble(self, *tests: str) -> str:
        """Run tests in the copy; say what failed, nothing where they passed. What never ends has not passed."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        try:
            run = subprocess.run(
                command, cwd=self.folder, capture_output=True, timeout=_SECONDS * len(tests), check=False
            )
        except subprocess.TimeoutExpired as error:
            return f"not within {error.timeout:g} s:\n{(error.stdout or b'').decode()[-_SAID:]}"
        said = run.stdout.decode()[-_SAID:]
        if run.returncode not in {0, 1}:
            raise RuntimeError(f"{tests} cannot be run:\n{said}")
        return said if run.returncode else ""
