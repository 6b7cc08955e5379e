"""The engine decides as the reference model does, and in parts as at once."""

from collections.abc import Callable
from pprint import pformat

import pytest

from tests.reference import drawing, engine, order
from tests.reference.world import Decision, World

Decide = Callable[[World], list[Decision]]


def check(seeds: range, one: Decide, other: Decide) -> None:
    """Compare two ways to decide; show the first world in which they differ, shrunk."""
    for seed in seeds:
        world = drawing.draw(seed)
        if one(world) != other(world):
            small = drawing.shrink(world, lambda smaller: one(smaller) != other(smaller))
            found = [pformat(each, width=110) for each in (small, one(small), other(small))]
            pytest.fail("\n".join([f"seed {seed}", *found]))


def in_parts(most: int) -> Decide:
    return lambda world: engine.plan_in_parts(world, most)


def test_engine_decides_as_the_reference():
    check(range(300), engine.plan, order.plan)


@pytest.mark.long
def test_engine_decides_as_the_reference_in_ten_thousand_worlds():
    check(range(300, 10_300), engine.plan, order.plan)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_plans_in_parts_decide_as_one_plan(most):
    check(range(600, 700), engine.plan, in_parts(most))


@pytest.mark.long
@pytest.mark.parametrize("most", [1, 2, 3])
def test_plans_in_parts_decide_as_one_plan_in_two_thousand_worlds(most):
    check(range(10_000, 12_000), engine.plan, in_parts(most))


def test_a_differing_world_is_shrunk():
    world = drawing.shrink(drawing.draw(6), lambda world: bool(world.jobs))
    assert len(world.jobs) == 1
    assert len(world.queues) == 1
