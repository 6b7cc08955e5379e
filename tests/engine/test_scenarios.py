"""Every scenario of tests/scenarios, played from both ends of its input."""

import re
from collections import Counter

import pytest

from controller.engine import cycle
from tests.scenario import SCENARIOS, Outcome, Scenario, documents, rows

RULES = re.compile(r"\b(?:[DQOCPRW]\d+|G1)\b")


def check(scenario: Scenario, outcome: Outcome, expect: dict) -> None:
    if isinstance(expect.get("admitted"), list):
        assert outcome.order == expect["admitted"]
    if isinstance(expect.get("admitted"), dict):
        where = {name: each if isinstance(each, list) else [each] for name, each in expect["admitted"].items()}
        assert outcome.admitted == where
    if "counts" in expect:
        counts = Counter(name.rsplit("-", 1)[0] for name in outcome.order)
        assert dict(counts) == {name: count for name, count in expect["counts"].items() if count}
    assert {name: outcome.waiting.get(name) for name in expect.get("waiting", {})} == expect.get("waiting", {})
    if "quiet" in expect:
        assert outcome.order == []
    check_amounts(scenario, expect)


def check_amounts(scenario: Scenario, expect: dict) -> None:
    standing = scenario.world.standing
    for name, due in rows(expect.get("entitlements")).items():
        shown = {resource: int(standing.entitlements[name].get(resource, 0)) for resource in due}
        assert shown == due, f"entitlement of {name}"
    for name, held in rows(expect.get("allocated")).items():
        assert {resource: standing.quota.amount(name, resource) for resource in held} == held, f"allocated of {name}"
    for name, ceiling in rows(expect.get("ceilings")).items():
        limit = standing.quota.limits[name].ceiling
        assert {resource: limit.get(resource, 0) for resource in ceiling} == ceiling, f"ceiling of {name}"
    for name, foreign in rows(expect.get("foreign")).items():
        known = scenario.world.ledger.site(name).foreign
        assert {resource: known.get(resource, 0) for resource in foreign} == foreign, f"foreign use of {name}"


@pytest.mark.parametrize("reverse", [pytest.param(False, id="as-written"), pytest.param(True, id="reversed")])
@pytest.mark.parametrize("document", [pytest.param(each, id=title) for title, each in documents()])
def test_scenario(document, reverse):
    scenario = Scenario(document, reverse=reverse)
    check(scenario, scenario.play({}), document["expect"])
    for step in document.get("then", ()):
        check(scenario, scenario.play(step), step["expect"])


@pytest.mark.parametrize("document", [pytest.param(each, id=title) for title, each in documents()])
def test_planning_again_changes_nothing(document):
    scenario = Scenario(document)
    scenario.play({})
    again = cycle.run(scenario.world, scenario.now)
    assert (again.decisions, again.waits) == ((), ())


def test_every_scenario_names_the_rules_it_shows():
    for title, document in documents():
        assert document["rules"], title
        assert all(RULES.fullmatch(rule) for rule in document["rules"]), title


def test_titles_are_told_apart():
    titles = [title for title, _ in documents()]
    assert len(titles) == len(set(titles))
    assert SCENARIOS.is_dir()
