"""Arithmetic on vectors of amounts."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.state.resources import (
    EMPTY,
    Resources,
    add,
    base_units,
    elementwise_max,
    first_insufficient,
    fits,
    subtract,
    total,
)

vectors = st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "gpu"]), st.integers(-9, 9))


def amount(resources: Resources, name: str) -> int:
    return resources.get(name, 0)


@given(st.lists(vectors, max_size=4))
def test_total_is_the_sum_of_its_parts(parts: list[Resources]):
    sums: Resources = EMPTY
    for part in parts:
        sums = add(sums, part)
    assert total(parts) == sums


@given(vectors, vectors)
def test_subtract_reverses_add(left: Resources, right: Resources):
    rest = subtract(add(left, right), right)
    assert all(amount(rest, name) == amount(left, name) for name in {*left, *right})


@given(vectors, vectors)
def test_both_vectors_fit_their_maximum(left: Resources, right: Resources):
    assert fits(left, elementwise_max(left, right))
    assert fits(right, elementwise_max(left, right))


@given(vectors, vectors)
def test_vector_that_fits_lacks_no_resource(request_: Resources, room: Resources):
    assert fits(request_, room) == (first_insufficient(request_, room) is None)


@given(vectors, vectors)
def test_no_operation_changes_its_operands(left: Resources, right: Resources):
    before = copy.deepcopy((left, right))
    for operation in (add, subtract, elementwise_max, fits, first_insufficient):
        operation(left, right)
    assert (left, right) == before


@pytest.mark.parametrize(
    ("request_", "room", "name"),
    [
        pytest.param({"cpu": 2}, {"cpu": 2}, None, id="exactly"),
        pytest.param({"cpu": 3}, {"cpu": 2}, "cpu", id="too-much"),
        pytest.param({"gpu": 1}, {"cpu": 2}, "gpu", id="a-missing-name-is-zero"),
        pytest.param({"cpu": 0}, {"cpu": -5}, None, id="nothing-asked-fits-even-negative-room"),
        pytest.param({"memory": 9, "cpu": 9}, {}, "cpu", id="the-first-by-name"),
        pytest.param({}, {}, None, id="nothing"),
    ],
)
def test_the_first_lacking_resource_is_named(request_: Resources, room: Resources, name: str | None):
    assert first_insufficient(request_, room) == name


def test_memory_is_in_bytes_and_other_resources_in_thousandths():
    assert [base_units(name) for name in ("memory", "cpu", "pods", "nvidia.com/gpu")] == [1, 1000, 1000, 1000]
