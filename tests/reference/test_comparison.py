"""Compares the engine with the reference model, and plans in parts with plans in one."""

from collections.abc import Callable, Iterable
from itertools import groupby
from pprint import pformat

import pytest

from controller.engine.policy import Policy
from tests.engine.worlds import Objects
from tests.reference import engine, gangs, generator, order
from tests.reference.state import Decision, State

Decide = Callable[[Objects], object]
MOST = 1, 2, 3


CONFIGURATIONS = [
    pytest.param(configuration, id=generator.name_of(configuration)) for configuration in generator.configurations()
]


def check(worlds: Iterable[Objects], one: Decide, other: Decide) -> None:
    """Compare two decision procedures; show the first state in which they differ, shrunk."""
    for number, state in enumerate(worlds):
        if one(state) != other(state):
            small = generator.shrink(state, lambda smaller: one(smaller) != other(smaller))
            texts = [pformat(shown, width=110) for shown in (State.of(small), one(small), other(small))]
            pytest.fail("\n".join([f"world {number}", *texts]))


def drawn(seeds: range) -> Iterable[Objects]:
    return map(generator.draw, seeds)


def evicting(seeds: range) -> Iterable[Objects]:
    return (state for seed in seeds if (state := generator.draw_evicting(seed)) is not None)


def check_parts(seeds: range, configuration: Policy) -> None:
    """Compare one plan with plans of at most one, two and three decisions each."""
    worlds = (generator.reconfigure(state, configuration) for state in drawn(seeds))
    check(worlds, in_one, in_parts)


def by_reference(state: Objects) -> list[Decision]:
    return order.plan(State.of(state))


def by_reference_with_gangs(state: Objects) -> list[Decision]:
    return gangs.plan(State.of(state))


def by_reference_in_any_order(state: Objects) -> list[list[Decision]]:
    return in_any_order(by_reference_with_gangs(state))


def evictions_in_any_order(state: Objects) -> list[list[Decision]]:
    return in_any_order(engine.plan(state))


def in_any_order(decisions: list[Decision]) -> list[list[Decision]]:
    """Return *decisions* with the victims of each preemption sorted by name: P3 does not order those that G1 adds."""
    grouped = groupby(decisions, key=lambda decision: (decision.action, decision.subject))
    return [
        sorted(group, key=lambda decision: decision.job) if kind[0] == "Evict" else [*group] for kind, group in grouped
    ]


def in_one(state: Objects) -> object:
    return [engine.plan_in_parts(state, None)] * len(MOST)


def in_parts(state: Objects) -> object:
    return [engine.plan_in_parts(state, most) for most in MOST]


def test_engine_decides_as_the_reference():
    check(drawn(range(300)), engine.plan, by_reference)


@pytest.mark.long
def test_engine_decides_as_the_reference_in_ten_thousand_states():
    check(drawn(range(300, 10_300)), engine.plan, by_reference)


def test_engine_decides_as_the_reference_while_victims_stop():
    check(evicting(range(1000)), engine.plan, by_reference)


@pytest.mark.long
def test_engine_decides_as_the_reference_while_many_stop():
    check(evicting(range(1000, 31_000)), engine.plan, by_reference)


def test_engine_admits_hyperjobs_as_the_reference():
    check(map(generator.draw_gangs, range(300)), engine.plan, by_reference_with_gangs)


@pytest.mark.long
def test_engine_admits_hyperjobs_as_the_reference_in_3000_states():
    check(map(generator.draw_gangs, range(300, 3300)), engine.plan, by_reference_with_gangs)


def test_engine_evicts_for_hyperjobs_as_reference():
    check(map(generator.draw_gang_evictions, range(300)), evictions_in_any_order, by_reference_in_any_order)


@pytest.mark.long
def test_engine_evicts_for_hyperjobs_as_reference_in_4200_states():
    check(map(generator.draw_gang_evictions, range(300, 4500)), evictions_in_any_order, by_reference_in_any_order)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_plans_in_parts_decide_as_one_plan(configuration):
    check_parts(range(600, 620), configuration)


@pytest.mark.long
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_plans_in_parts_decide_as_one_plan_in_2000_states(configuration):
    check_parts(range(10_000, 12_000), configuration)


def test_shrink_returns_a_smaller_differing_state():
    state = generator.shrink(generator.draw(6), lambda state: bool(state.workloads))
    assert len(state.workloads) == 1
    assert len(state.queues) == 1
