"""The audit of charges reports every difference except those that a documented rule allows."""

from fractions import Fraction

import pytest

from tests.hostile.audit import Charge, Run, differences, miscounts

KEY = ("wild-1", "job-1", "c1")
ONE, TWO = ({"cpu": Fraction(count)} for count in (1, 2))


@pytest.mark.parametrize(
    ("charge", "run", "is_found"),
    [
        pytest.param(Charge("q", ONE), Run(ONE, is_edited=False), False, id="equal"),
        pytest.param(None, Run(ONE, is_edited=False), True, id="runs-uncharged"),
        pytest.param(Charge("q", ONE), None, True, id="charged-and-stands"),
        pytest.param(Charge("q", ONE, may_stand=True), None, False, id="may-stand"),
        pytest.param(Charge("q", ONE), Run(TWO, is_edited=False), True, id="runs-more"),
        pytest.param(Charge("q", ONE), Run(TWO, is_edited=True), True, id="runs-more-after-an-edit"),
        pytest.param(Charge("q", ONE, may_stand=True), Run(TWO, is_edited=False), True, id="may-stand-runs-more"),
        pytest.param(Charge("q", TWO), Run(ONE, is_edited=False), True, id="runs-less"),
        pytest.param(Charge("q", TWO), Run(ONE, is_edited=True), False, id="runs-less-after-an-edit"),
        pytest.param(Charge("q", ONE), Run(ONE | {"gpu": Fraction(1)}, is_edited=True), True, id="other-resource"),
    ],
)
def test_charges_and_running_jobs_are_compared_both_ways(charge, run, is_found):
    unexplained = differences({KEY: charge} if charge else {}, {KEY: run} if run else {})
    assert list(unexplained) == [KEY] * is_found


@pytest.mark.parametrize(
    ("queue", "before", "after", "is_found"),
    [
        pytest.param("wild-a", 1, 1, False, id="equal"),
        pytest.param("wild-a", 0, 2, False, id="changed-meanwhile"),
        pytest.param("wild-a", 2, 2, True, id="more-usage"),
        pytest.param("wild-a", 0, 0, True, id="record-without-usage"),
        pytest.param("wild-b", 3, 3, True, id="usage-without-a-record"),
    ],
)
def test_records_are_compared_with_queue_usage(queue, before, after, is_found):
    usages = ({(queue, "cpu"): Fraction(value), ("wild-a", "memory"): Fraction(0)} for value in (before, after))
    miscounted = miscounts({KEY: Charge("wild-a", ONE)} if queue == "wild-a" else {}, *usages)
    assert list(miscounted) == [("", queue, "cpu")] * is_found
