"""The tables of faults and invariants name tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations" / "faults.md").read_text()
ROW = re.compile(r'^\| <a id="\w+"></a>([FI]\d+) \| .* \| ([^|]*) \|$', re.MULTILINE)
TABLE = dict(ROW.findall(PAGE))


def named(row: str) -> list[tuple[Path, str]]:
    """Return file and function of each test of a row; a name without its file is in the one before."""
    found: list[tuple[Path, str]] = []
    for file, name in re.findall(r"`([\w/.]*)::(\w+)`", row):
        place = (ROOT / file if "/" in file else ROOT / "tests" / "faults" / file) if file else found[-1][0]
        found.append((place, name))
    return found


def test_every_fault_and_invariant_has_a_row():
    assert list(TABLE) == [*(f"I{number}" for number in range(1, 9)), *(f"F{number}" for number in range(1, 31))]


@pytest.mark.parametrize("subject", TABLE)
def test_tests_named_by_faults_exist(subject):
    tests = named(TABLE[subject])
    assert tests
    for file, name in tests:
        assert re.search(rf"^(?:async )?def {name}\(", file.read_text(), re.MULTILINE), f"{file}::{name}"
