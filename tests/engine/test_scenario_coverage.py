"""Checks that the scenarios cover every rule and that every expectation is compared."""

from collections import Counter

import pytest

from tests.scenario import DOCUMENT, SCENARIOS, Scenario, documents
from tests.scenario_parser import known

SECTIONS = {
    "D": range(1, 12),
    "Q": range(1, 8),
    "O": range(1, 8),
    "C": range(1, 6),
    "P": range(1, 7),
    "G": (1,),
    "R": range(1, 3),
    "W": range(1, 3),
}
RULES = [f"{section}{number}" for section, numbers in SECTIONS.items() for number in numbers]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_two_scenarios(rule):
    shown = [title for title, document in documents() if rule in document["rules"]]
    assert len(shown) >= 2, f"{rule} is shown by {shown}"


def test_at_least_100_scenarios_are_no_worked_cases():
    assert len([title for title, _ in documents() if not title.startswith("worked-cases:")]) >= 100


def test_every_step_of_a_scenario_has_expectations():
    for title, document in documents():
        assert all(step["expect"] for step in (document, *document.get("then", ()))), title


def test_no_scenario_names_a_rule_twice():
    for title, document in documents():
        assert max(Counter(document["rules"]).values()) == 1, title


def test_unknown_keys_are_refused():
    with pytest.raises(KeyError, match="wiegth"):
        Scenario({"queues": [{"name": "A", "wiegth": 2}]})
    with pytest.raises(KeyError, match="expects"):
        known({"expects": {}}, DOCUMENT)


def test_readme_describes_every_key():
    text = (SCENARIOS / "README.md").read_text()
    assert all(f"`{key}`" in text for key in DOCUMENT.split())
