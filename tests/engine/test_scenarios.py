"""Runs every scenario of tests/scenarios, with its input in order and reversed."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from controller.api.quantity import parse_quantity
from controller.engine.reasons import Refusal
from controller.engine.steps import finish
from tests.scenario import DOCUMENT, STEP, Outcome, Scenario, documents, rows
from tests.scenario_parser import known, resource

ROOT = Path(__file__).parents[2]
RULES = re.findall(r"^### <a id=\"\w+\"></a>(\w+) ", (ROOT / "docs/reference/semantics.md").read_text(), re.MULTILINE)
SHOWN_ELSEWHERE = {
    "C6": "tests/cache/test_data_requirements.py",
    "O10": "tests/engine/test_ageing.py",
    "W4": "tests/controllers/queue_status/test_counts.py",
}
"""The rules with fewer than two scenarios, and the tests that show them."""
EXPECT = (
    "admitted counts evicted evictions for expired reserved requeued waiting facts positions published wakesAfter "
    "fairShares allocated queueLimits externalUsage headroom clusterCharges requested gangs charges"
)


def check(scenario: Scenario, outcome: Outcome, expect: Mapping[str, Any]) -> None:
    known(expect, EXPECT)
    if isinstance(expect.get("admitted"), list):
        assert outcome.order == expect["admitted"]
    if isinstance(expect.get("admitted"), dict):
        where = {
            name: clusters if isinstance(clusters, list) else [clusters]
            for name, clusters in expect["admitted"].items()
        }
        assert outcome.admitted == where
    if "counts" in expect:
        counts = Counter(name.rsplit("-", 1)[0] for name in outcome.order)
        assert dict(counts) == {name: count for name, count in expect["counts"].items() if count}
    check_evictions(outcome, expect)
    reasons = {name: str(refusal.reason) for name, refusal in outcome.waiting.items()}
    assert {name: reasons.get(name) for name in expect.get("waiting", {})} == expect.get("waiting", {})
    for name, facts in expect.get("facts", {}).items():
        assert {fact: in_notation(outcome.waiting[name], facts, fact) for fact in facts} == facts, f"facts of {name}"
    places = {name: outcome.positions.get(name) for name in expect.get("positions", {})}
    assert places == expect.get("positions", {})
    if "published" in expect:
        assert outcome.published == expect["published"]
    if "wakesAfter" in expect:
        assert outcome.wake_after == expect["wakesAfter"]
    check_amounts(scenario, expect)


def check_evictions(outcome: Outcome, expect: Mapping[str, Any]) -> None:
    """Compare victims and their preemptors; evictions that are not listed fail."""
    if "evictions" in expect:
        counts = Counter(name.rsplit("-", 1)[0] for name in outcome.evicted)
        assert dict(counts) == {name: count for name, count in expect["evictions"].items() if count}
    elif isinstance(expect.get("evicted"), dict):
        assert outcome.reasons == expect["evicted"]
    else:
        assert outcome.evicted == expect.get("evicted", [])
    assert {name: outcome.left_for.get(name) for name in expect.get("for", {})} == expect.get("for", {})
    assert outcome.expired == expect.get("expired", [])
    assert outcome.requeued == expect.get("requeued", [])
    if "reserved" in expect:
        assert outcome.reserved == expect["reserved"]


def in_notation(refusal: Refusal, facts: Mapping[str, Any], fact: str) -> Any:
    """Return a fact in the notation of the scenario; equal amounts keep their notation."""
    value = getattr(refusal, fact)
    if fact == "resource" and value == resource(facts[fact]):
        return facts[fact]
    is_amount = fact in {"asked", "available"} and value is not None
    if is_amount and value == parse_quantity(resource(facts["resource"]), str(facts[fact])):
        return facts[fact]
    return value


def check_amounts(scenario: Scenario, expect: Mapping[str, Any]) -> None:
    """Compare amounts of the resources that the scenario names."""
    engine = scenario.engine
    standing = engine.queue_shares
    held = {
        "fairShares": lambda name: {
            resource_name: int(due) for resource_name, due in standing.fair_shares[name].items()
        },
        "allocated": lambda name: engine.current_quota.allocated[name],
        "queueLimits": lambda name: standing.quota.limits[name].limit,
        "externalUsage": lambda name: engine.cluster_usage.cluster_state(name).external_usage,
        "headroom": lambda name: engine.cluster_usage.cluster_state(name).headroom,
        "clusterCharges": lambda name: engine.cluster_usage.cluster_state(name).charged,
        "requested": lambda name: scenario.by_name(name).requirements.requests,
        "gangs": lambda name: scenario.by_name(name).requirements.gang_requests,
        "charges": lambda name: scenario.by_name(name).admission.charge,
    }
    for kind, amounts_of in held.items():
        for name, due in rows(expect.get(kind)).items():
            amounts = amounts_of(name)
            assert {resource_name: amounts.get(resource_name, 0) for resource_name in due} == due, f"{kind} of {name}"


def scenarios() -> list[Any]:
    """Return every scenario as a parameter; one marked as broken must fail until it is fixed."""
    return [
        pytest.param(
            document,
            id=title,
            marks=[pytest.mark.xfail(reason=document["broken"], strict=True)] if "broken" in document else [],
        )
        for title, document in documents()
    ]


@pytest.mark.parametrize("reverse", [pytest.param(False, id="as-written"), pytest.param(True, id="reversed")])
@pytest.mark.parametrize("document", scenarios())
def test_scenario(document, reverse):
    scenario = Scenario(document, reverse=reverse)
    check(scenario, scenario.play({}), document["expect"])
    for step in document.get("then", ()):
        check(scenario, scenario.play(known(step, STEP)), step["expect"])


@pytest.mark.parametrize("document", [pytest.param(document, id=title) for title, document in documents()])
def test_second_cycle_without_changes_decides_nothing(document):
    scenario = Scenario(document)
    for step in ({}, *document.get("then", ())):
        scenario.play(step)
        again = finish(scenario.engine.cycle.steps(scenario.now))
        assert (again.decisions, again.waits, again.record_updates, again.reschedules) == ((), (), (), ())


def test_every_rule_has_two_scenarios_or_other_tests():
    shown = Counter(rule for _, document in documents() for rule in {*document["rules"]})
    assert sorted(rule for rule in RULES if shown[rule] < 2) == sorted(SHOWN_ELSEWHERE)
    assert {*shown} <= {*RULES}
    assert all((ROOT / path).is_file() for path in SHOWN_ELSEWHERE.values())


def test_unknown_keys_of_a_scenario_are_refused():
    with pytest.raises(KeyError, match="wiegth"):
        Scenario({"queues": [{"name": "A", "wiegth": 2}]})
    with pytest.raises(KeyError, match="expects"):
        known({"expects": {}}, DOCUMENT)
