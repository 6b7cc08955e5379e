"""The table of threats names tests; each of them is there."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "operations" / "threats.md"
FILE = re.compile(r"`(tests/[^`]+)`(?: \(([^)]*)\))?")
NAME = re.compile(r"`([^`]+)`")


def rows() -> Iterator[tuple[str, str]]:
    """Yield each attack with the cell that names its tests."""
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 1 and cells[1] not in {"attack", "---"}:
            _, attack, _, tests, _, _ = cells
            yield attack, tests


@pytest.mark.parametrize(("attack", "tests"), list(rows()))
def test_every_attack_names_tests_that_exist(attack, tests):
    named = FILE.findall(tests)
    assert named, f"no test of: {attack}"
    for file, names in named:
        source = (ROOT / file).read_text()
        known = re.findall(r"^ *(?:async )?def (test_\w+)", source, re.MULTILINE)
        for pattern in NAME.findall(names):
            assert any(fnmatchcase(name, pattern.replace("\N{HORIZONTAL ELLIPSIS}", "*")) for name in known), pattern
