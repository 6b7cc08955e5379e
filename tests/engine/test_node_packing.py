"""Packing onto empty nodes: exact for small gangs, sound and bounded for all."""

from random import Random

import pytest

from controller.engine.placement.node_packing import can_hold_gang, replicas_that_pack
from controller.engine.state.clusters import NodeShape
from controller.engine.state.requests import PodSet
from tests.engine.fleets import has_place
from tests.work import work_of


def pods(*sets):
    return [PodSet(tuple(sorted(request.items())), count, count) for count, request in sets]


def nodes(*shapes):
    return [NodeShape(count, tuple(sorted(has.items()))) for count, has in shapes]


@pytest.mark.parametrize(
    ("gang", "fleet", "holds"),
    [
        pytest.param(
            [(1, {"cpu": 9, "gpu": 9})],
            [(9, {"cpu": 9, "gpu": 0}), (9, {"cpu": 0, "gpu": 9})],
            False,
            id="no-node-has-both",
        ),
        pytest.param([(3, {"a": 6}), (3, {"a": 3})], [(4, {"a": 8})], False, id="left-over-is-too-small"),
        pytest.param([(2, {"a": 5}), (2, {"a": 4}), (3, {"a": 3})], [(3, {"a": 9})], True, id="needs-search-yes"),
        pytest.param([(5000, {"gpu": 3})], [(2500, {"gpu": 8})], True, id="thousands-of-nodes"),
        pytest.param([(5001, {"gpu": 3})], [(2500, {"gpu": 8})], False, id="one-too-many-for-thousands"),
        pytest.param([], [(1, {"gpu": 8})], True, id="no-pods-counted"),
    ],
)
def test_gang_is_held_if_and_only_if_it_can_be_placed(gang, fleet, holds):
    assert can_hold_gang(pods(*gang), nodes(*fleet)) == holds


def test_packing_of_small_gangs_equals_exhaustive_search():
    for seed in range(400):
        random = Random(seed)
        fleet = [(random.randint(1, 2), {"a": random.randint(4, 12), "b": random.randint(4, 12)}) for _ in range(2)]
        gang = [(random.randint(1, 3), {"a": random.randint(1, 7), "b": random.randint(0, 7)}) for _ in range(3)]
        exact = has_place(
            [(request, count) for count, request in gang], [has for count, has in fleet for _ in range(count)]
        )
        assert can_hold_gang(pods(*gang), nodes(*fleet)) == exact, seed


def test_packing_work_is_bounded_for_gangs_of_many_requests():
    random = Random(0)
    fleet = nodes(
        *((random.randint(1, 50), {"a": random.randint(100, 999), "b": random.randint(100, 999)}) for _ in range(20))
    )
    gang = pods(*((1, {"a": random.randint(1, 500), "b": random.randint(1, 500)}) for _ in range(100)))
    assert work_of(lambda: can_hold_gang(gang, fleet)) < 550_000


def test_packing_work_is_linear_in_the_number_of_requests():
    random = Random(0)
    fleet = nodes(
        *((random.randint(1, 50), {"a": random.randint(100, 999), "b": random.randint(100, 999)}) for _ in range(20))
    )
    gang = pods(*((1, {"a": random.randint(1, 20), "b": random.randint(1, 20)}) for _ in range(1000)))
    assert work_of(lambda: can_hold_gang(gang, fleet)) < 600_000


def test_search_is_bounded_for_a_gang_that_hardly_fits():
    random = Random(0)
    requests = [{"a": random.randint(100, 300), "b": random.randint(100, 300)} for _ in range(23)]
    shape = {name: sum(request[name] for request in requests) // 5 + 3 for name in "ab"}
    gang, fleet = pods(*((1, request) for request in requests)), nodes((5, shape))
    assert work_of(lambda: can_hold_gang(gang, fleet)) < 1_000_000


@pytest.mark.parametrize(
    ("replica", "fleet", "most"),
    [
        pytest.param({"gpu": 5}, [(4, {"gpu": 8})], 4, id="one-to-a-node"),
        pytest.param({"gpu": 2, "cpu": 30}, [(1, {"gpu": 8, "cpu": 64}), (1, {"gpu": 8})], 6, id="scarcest-resource"),
        pytest.param({"memory": 5}, [(4, {"gpu": 8})], None, id="resource-not-named"),
        pytest.param({"gpu": 5}, [(4, {"gpu": 8}), (1, {"cpu": 8})], None, id="not-named-by-one-shape"),
    ],
)
def test_equal_replicas_are_packed_exactly(replica, fleet, most):
    assert replicas_that_pack(replica, nodes(*fleet)) == most
