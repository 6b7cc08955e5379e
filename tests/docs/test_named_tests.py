"""The tables of faults, invariants, attacks and threats name tests that exist."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPERATIONS = ROOT / "docs" / "operations"
FAULTS = (OPERATIONS / "faults.md").read_text()
ATTACKS, _, THREATS = (OPERATIONS / "threats.md").read_text().partition("## The installation")
#: A file, a test of the file named before it, or both; an ellipsis stands for any text.
NAMED = re.compile(r"`([\w/-]+\.\w+)?(?:::)?([^`]*)`")
#: A row with an anchor, and its last cell.
ROW = re.compile(r'^\| <a id="\w+"></a>(\w+) \| .* \| ([^|]*) \|$', re.MULTILINE)
ATTACK = re.compile(r"^\| (?!attack )([^|]+) \| [^|]+ \| ([^|]*[^|-]) \| [^|]*\|$", re.MULTILINE)

CELLS = [
    *((name, cell, "tests/faults") for name, cell in ROW.findall(FAULTS)),
    *((name, cell, "tests/webhook") for name, cell in ROW.findall(THREATS)),
    *((attack, cell, "") for attack, cell in ATTACK.findall(ATTACKS)),
]


@pytest.mark.parametrize(("subject", "cell", "folder"), CELLS)
def test_documented_tests_exist(subject, cell, folder):
    file, named = ROOT, NAMED.findall(cell)
    assert named, f"no test of: {subject}"
    for path, name in named:
        if path:
            file = ROOT / (path if "/" in path else f"{folder}/{path}")
        assert file.is_file(), file
        if name and file.suffix == ".py":
            defined = re.findall(r"^ *(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
            pattern = name.replace("\N{HORIZONTAL ELLIPSIS}", "*")
            assert any(fnmatchcase(test_name, pattern) for test_name in defined), f"{file}::{name}"


def test_every_fault_invariant_and_threat_has_a_row():
    counts = {"I": 8, "F": 31, "TA": 7, "TB": 10, "TC": 9}
    expected = {f"{letters}{number}" for letters, count in counts.items() for number in range(1, count + 1)}
    assert {name for name, _, folder in CELLS if folder} == expected | {"TB3b"}
