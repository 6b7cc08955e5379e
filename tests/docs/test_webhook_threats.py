"""The README's table of threats: each is answered by a test that is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THREATS = ["TA1", "TA2", "TA3", "TA4", "TA5", "TA6", "TA7", "TB1", "TB2", "TB3", "TB4", "TB5"]
ROW = re.compile(r"^\| (T[AB]\d) [^|]*\| (.*) \|$", re.MULTILINE)

table = dict(ROW.findall((ROOT / "README.md").read_text()))


def named(threat: str) -> list[tuple[Path, str]]:
    """Return file and function of each test that the table names; a name without its file is in the one before."""
    found: list[tuple[Path, str]] = []
    for file, name in re.findall(r"`([\w/.]*)::(\w+)`", table[threat]):
        place = ROOT / (file if "/" in file else f"tests/webhook/{file}") if file else found[-1][0]
        found.append((place, name))
    return found


def test_every_threat_is_answered_once():
    assert list(table) == THREATS


@pytest.mark.parametrize("threat", THREATS)
def test_a_threat_is_answered_by_tests_that_are_there(threat):
    tests = named(threat)
    assert tests
    assert table[threat].count("`") == 2 * len(tests)
    for file, name in tests:
        functions = [
            each
            for each in ast.parse(file.read_text()).body
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        assert name in {function.name for function in functions}, f"{threat}: {file} has no {name}"
