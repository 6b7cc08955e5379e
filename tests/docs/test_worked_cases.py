"""The worked cases of the rules and the scenarios number the same cases."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
WORKED_CASES = (ROOT / "docs" / "reference" / "semantics.md").read_text().partition("## Worked cases")[2]


def test_each_worked_case_has_a_scenario():
    documents = yaml.safe_load_all((ROOT / "tests" / "scenarios" / "worked-cases.yaml").read_text())
    titles = [document["title"] for document in documents if document]
    numbers = re.findall(r"^\| (\d+) \|", WORKED_CASES, re.MULTILINE)
    assert {*map(int, numbers)} == {int(re.match(r"case (\d+),", title)[1]) for title in titles}
