"""When running workloads are expected to end, as forecasts ask for it many times."""

import pytest

from controller.engine.reservations.expected_ends import ExpectedEnds, by_reservations

ENDS = ExpectedEnds(
    [
        ((), 20, {"cpu": 1, "memory": 5}),
        (("r",), 30, {"cpu": 2}),
        (("r",), None, {"cpu": 4}),
        (("r", "s"), 10, {"cpu": 8}),
    ]
)


@pytest.mark.parametrize(
    ("after", "until", "released"),
    [(0, 9, {}), (0, 10, {"cpu": 8}), (10, 30, {"cpu": 3, "memory": 5}), (30, 99, {}), (30, 10, {})],
)
def test_charges_with_a_known_end_are_released_at_it(after, until, released):
    assert ENDS.released(after, until) == released


def test_charges_of_workloads_without_a_known_end_stay_reserved():
    assert ENDS.first == 10
    assert ENDS.reserved_after(0) == {("r",): {"cpu": 6}, ("r", "s"): {"cpu": 8}}
    assert ENDS.reserved_after(30) == {("r",): {"cpu": 4}, ("r", "s"): {"cpu": 0}}


def test_charges_for_one_reservation_precede_those_for_several():
    grouped = by_reservations([(("r", "s"), 1), ((), 2), (("s",), 3), (("r", "s"), 4)])
    assert list(grouped.items()) == [(("s",), [3]), (("r", "s"), [1, 4])]
