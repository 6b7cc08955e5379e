"""The tables of threats name tests that exist."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations" / "threats.md").read_text()
ATTACKS, _, INSTALLATION = PAGE.partition("## The installation")
FILE = re.compile(r"`(tests/[^`]+)`(?: \(([^)]*)\))?")
NAME = re.compile(r"`([^`]+)`")
THREAT = re.compile(r'^\| <a id="\w+"></a>(T\w+) \| [^|]+ \| [^|]+ \| (.*) \|$', re.MULTILINE)
THREATS = dict(THREAT.findall(INSTALLATION))


def attacks() -> Iterator[tuple[str, str]]:
    """Yield each attack with the cell that names its tests."""
    for line in ATTACKS.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 1 and cells[1] not in {"attack", "---"}:
            _, attack, _, tests, _, _ = cells
            yield attack, tests


def defined(file: Path) -> list[str]:
    return re.findall(r"^ *(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)


@pytest.mark.parametrize(("attack", "tests"), list(attacks()))
def test_every_attack_names_existing_tests(attack, tests):
    named = FILE.findall(tests)
    assert named, f"no test of: {attack}"
    for file, names in named:
        source = ROOT / file
        assert source.is_file(), file
        if source.suffix == ".py":
            for pattern in NAME.findall(names):
                wanted = pattern.replace("\N{HORIZONTAL ELLIPSIS}", "*")
                assert any(fnmatchcase(name, wanted) for name in defined(source)), pattern


def test_every_threat_has_a_row():
    ids = {f"TA{number}" for number in range(1, 8)}
    ids |= {f"TB{number}" for number in range(1, 11)} | {"TB3b"} | {f"TC{number}" for number in range(1, 10)}
    assert set(THREATS) == ids


@pytest.mark.parametrize("threat", THREATS)
def test_every_threat_names_existing_tests(threat):
    place = ROOT
    named = NAME.findall(THREATS[threat])
    assert named
    for text in named:
        file, _, name = text.partition("::")
        if file:
            place = ROOT / (file if "/" in file else f"tests/webhook/{file}")
        assert place.is_file(), text
        if name:
            assert name in defined(place), text
