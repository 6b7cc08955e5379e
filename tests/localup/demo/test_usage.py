from fractions import Fraction

import pytest

from localup.demo.usage import Peak, QueueUsage, UsageHistory


def standing(queue, cpus, *, pending=0, fair_share=0):
    return QueueUsage(queue, {"cpu": cpus * 1000}, {"cpu": Fraction(fair_share * 1000)}, pending=pending)


@pytest.fixture
def usage():
    return UsageHistory()


def test_the_peak_is_told_with_the_entitlement_of_its_moment(usage):
    usage.record(1, [standing("a", 4, fair_share=9)])
    usage.record(2, [standing("a", 8, fair_share=3)])
    usage.record(3, [standing("a", 2, fair_share=5)])
    assert usage.peak("a", "cpu") == Peak(8000, Fraction(3000))


def test_a_queue_that_held_nothing_has_no_peak(usage):
    usage.record(1, [standing("a", 0)])
    assert usage.peak("a", "cpu") == Peak()
    assert usage.peak("a", "nvidia.com/gpu") == Peak()


def test_the_average_is_weighted_by_time_and_leaves_out_when_one_did_not_wait(usage):
    usage.record(0, [standing("a", 0, pending=1), standing("b", 0, pending=1)])  # neither holds anything yet
    usage.record(5, [standing("a", 2, pending=1), standing("b", 4, pending=1)])
    usage.record(6, [standing("a", 1, pending=1), standing("b", 6, pending=1)])
    usage.record(9, [standing("a", 9, pending=1), standing("b", 0, pending=0)])
    usage.record(20, [standing("a", 0), standing("b", 0)])
    lasted, first, second = usage.contention("a", "b", "cpu")
    assert lasted == 4
    assert (float(first), float(second)) == (1250.0, 5500.0)


def test_without_contention_there_is_no_average(usage):
    usage.record(0, [standing("a", 4), standing("b", 4, pending=3)])
    usage.record(9, [standing("a", 4), standing("b", 4, pending=3)])
    assert usage.contention("a", "b", "cpu") is None


def test_contention_counts_until_the_given_moment_only(usage):
    for at in (0, 4, 9):
        usage.record(at, [standing("a", 2, pending=1), standing("b", 4, pending=1)])
    assert usage.contention("a", "b", "cpu", before=9)[0] == 4
