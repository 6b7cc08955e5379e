"""Every code of a rule, threat, fault or invariant leads to an anchor in the documents."""

import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEMANTICS = ROOT / "docs" / "reference" / "semantics.md"
OPERATIONS = ROOT / "docs" / "operations"

CODE = re.compile(r"(?<![\w./#-])(?:[DQOCPGRWFI]\d{1,2}|T[ABC]\d{1,2}b?)(?![\w-]|\.\d)")
#: Percentiles of a distribution look like codes.
PERCENTILES = {"P50", "P99"}


def anchors() -> set[str]:
    """Return every code that has an anchor in the documents."""
    pages = (SEMANTICS, OPERATIONS / "threats.md", OPERATIONS / "faults.md")
    codes = [code for page in pages for code in re.findall(r'<a id="([a-z]+\d+b?)"></a>', page.read_text())]
    return {code[:-1].upper() + code[-1] if code.endswith("b") else code.upper() for code in codes}


def citations() -> Iterator[tuple[str, str]]:
    """Yield each file with each code that it cites: in comments, docstrings, messages and documents."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if not path.is_file() or name.startswith(("tests/golden/", "tests/data/", "tests/docs/")):
            continue
        if path.suffix == ".py":
            texts = _prose(path)
        elif path.suffix in {".md", ".yaml", ".tpl", ".txt"} and not name.startswith("requirements"):
            texts = iter([path.read_text()])
        else:
            continue
        yield from ((name, code) for text in texts for code in CODE.findall(text) if code not in PERCENTILES)


def _prose(path: Path) -> Iterator[str]:
    with path.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type in {tokenize.COMMENT, tokenize.STRING}:
                yield token.string


def test_every_cited_code_has_an_anchor():
    known = anchors()
    assert sorted({(name, code) for name, code in citations() if code not in known}) == []


def test_every_rule_heading_has_a_unique_anchor():
    headings = re.findall(r'^### <a id="(\w+)"></a>([A-Z]\d+) ', SEMANTICS.read_text(), re.MULTILINE)
    assert [code.lower() for _, code in headings] == [anchor for anchor, _ in headings]
    assert len({anchor for anchor, _ in headings}) == len(headings) == 48


def test_no_page_has_anchors_that_github_does_not_know():
    for page in (ROOT / "docs").rglob("*.md"):
        assert not re.findall(r"^#+ .*\{#.*\}$", page.read_text(), re.MULTILINE), page


def test_codes_are_recognised_in_prose():
    codes = CODE.findall("as Q4 and P1 say (TB3b, D11); v1.18, P4's, DS9-1, C3,")
    assert codes == ["Q4", "P1", "TB3b", "D11", "P4", "C3"]
