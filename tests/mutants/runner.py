"""Runs tests in a copy of the source tree with one mutation."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

from tests.mutants.catalogue import Mutant

ROOT = Path(__file__).parents[2]
_TREES = ("certs", "charts", "controller", "examples", "localup", "tests", "webhook")
_TIMEOUT_SECONDS = 180
_MAX_OUTPUT = 6_000


def mutate(mutant: Mutant, root: Path) -> str:
    """Return the source of the mutated module in *root*; raise `LookupError` unless the text occurs exactly once."""
    module = ast.parse((root / mutant.file).read_text())
    parent: ast.Module | ast.ClassDef = module
    *classes, name = mutant.definition.split(".")
    for outer in classes:
        parent = next(node for node in parent.body if isinstance(node, ast.ClassDef) and node.name == outer)
    definition = next(node for node in parent.body if getattr(node, "name", "") == name)
    text = ast.unparse(definition)
    if (count := text.count(mutant.text)) != 1:
        raise LookupError(f"mutant {mutant.name!r}: {mutant.definition} has its text {count} times")
    parent.body[parent.body.index(definition)] = ast.parse(text.replace(mutant.text, mutant.replacement)).body[0]
    return ast.unparse(module)


class MutatedTree:
    """A copy of the source tree, mutated once at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _TREES:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)

    def apply(self, mutant: Mutant) -> None:
        """Write the mutated module."""
        (self.folder / mutant.file).write_text(mutate(mutant, ROOT))

    def revert(self, mutant: Mutant) -> None:
        """Restore the mutated module."""
        shutil.copy(ROOT / mutant.file, self.folder / mutant.file)

    def run_tests(self, *tests: str) -> str:
        """Run tests in the copy; return the output of failures, empty if all passed. A timeout counts as a failure."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        try:
            run = subprocess.run(
                command, cwd=self.folder, capture_output=True, timeout=_TIMEOUT_SECONDS * len(tests), check=False
            )
        except subprocess.TimeoutExpired as error:
            return f"timeout after {error.timeout:g} s:\n{(error.stdout or b'').decode()[-_MAX_OUTPUT:]}"
        output = run.stdout.decode()[-_MAX_OUTPUT:]
        if run.returncode not in {0, 1}:
            raise RuntimeError(f"tests {tests} cannot be run:\n{output}")
        return output if run.returncode else ""
