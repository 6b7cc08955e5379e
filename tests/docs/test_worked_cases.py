"""The worked cases of the rules, the scenarios and the tests of the command line number the same cases."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| (\d+) \| .* \| (yes|no) \|$", (ROOT / "docs" / "reference" / "semantics.md").read_text(), re.MULTILINE
)


def test_each_worked_case_has_a_scenario():
    documents = yaml.safe_load_all((ROOT / "tests" / "scenarios" / "worked-cases.yaml").read_text())
    titles = [document["title"] for document in documents if document]
    assert {int(number) for number, _ in ROWS} == {int(re.match(r"case (\d+),", title)[1]) for title in titles}


def test_table_lists_the_cases_run_as_manifests():
    source = (ROOT / "tests" / "cli" / "test_worked_cases.py").read_text()
    tested = set(re.findall(r"^def test_case_(\d+)_", source, re.MULTILINE))
    assert {number for number, also in ROWS if also == "yes"} == tested
