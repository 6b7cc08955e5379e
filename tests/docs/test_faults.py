"""The tables of faults and invariants of docs/operations/faults.md: each is answered by tests that are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = ROOT / "tests" / "faults"
PAGE = ROOT / "docs" / "operations" / "faults.md"
FAULTS = [f"F{number}" for number in (*range(1, 18), *range(22, 28), 29, 30)]
INVARIANTS = [f"I{number}" for number in range(1, 9)]

table = dict(re.findall(r"^\| ([FI]\d+) (.*) \|$", PAGE.read_text(), re.MULTILINE))


def named(row: str) -> list[tuple[Path, str]]:
    """Return file and function of each test of a row; a name without its file is in the one before."""
    found: list[tuple[Path, str]] = []
    for file, name in re.findall(r"`([\w/.]*)::(\w+)`", row):
        place = (ROOT / file if "/" in file else HERE / file) if file else found[-1][0]
        found.append((place, name))
    return found


def test_every_fault_and_every_invariant_has_its_row():
    assert list(table) == [*INVARIANTS, *FAULTS]


@pytest.mark.parametrize("subject", [*INVARIANTS, *FAULTS])
def test_its_tests_are_there(subject):
    tests = named(table[subject])
    assert tests
    for file, name in tests:
        parsed = ast.parse(file.read_text())
        functions = {each.name for each in parsed.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in functions, f"{subject}: {file} has no {name}"
