from fractions import Fraction

import pytest

from localup.demo.usage import Peak, QueueUsage, UsageHistory


def standing(queue, cpus, *, waiting=0, entitled=0):
    return QueueUsage(queue, {"cpu": cpus * 1000}, {"cpu": Fraction(entitled * 1000)}, waiting=waiting)


@pytest.fixture
def usage():
    return UsageHistory()


def test_the_peak_is_told_with_the_entitlement_of_its_moment(usage):
    usage.note(1, [standing("a", 4, entitled=9)])
    usage.note(2, [standing("a", 8, entitled=3)])
    usage.note(3, [standing("a", 2, entitled=5)])
    assert usage.peak("a", "cpu") == Peak(8000, Fraction(3000))


def test_a_queue_that_held_nothing_has_no_peak(usage):
    usage.note(1, [standing("a", 0)])
    assert usage.peak("a", "cpu") == Peak()
    assert usage.peak("a", "nvidia.com/gpu") == Peak()


def test_the_average_is_weighted_by_time_and_leaves_out_when_one_did_not_wait(usage):
    usage.note(0, [standing("a", 0, waiting=1), standing("b", 0, waiting=1)])  # neither holds anything yet
    usage.note(5, [standing("a", 2, waiting=1), standing("b", 4, waiting=1)])
    usage.note(6, [standing("a", 1, waiting=1), standing("b", 6, waiting=1)])
    usage.note(9, [standing("a", 9, waiting=1), standing("b", 0, waiting=0)])
    usage.note(20, [standing("a", 0), standing("b", 0)])
    lasted, first, second = usage.contended("a", "b", "cpu")
    assert lasted == 4
    assert (float(first), float(second)) == (1250.0, 5500.0)


def test_without_contention_there_is_no_average(usage):
    usage.note(0, [standing("a", 4), standing("b", 4, waiting=3)])
    usage.note(9, [standing("a", 4), standing("b", 4, waiting=3)])
    assert usage.contended("a", "b", "cpu") is None


def test_contention_counts_until_the_given_moment_only(usage):
    for at in (0, 4, 9):
        usage.note(at, [standing("a", 2, waiting=1), standing("b", 4, waiting=1)])
    assert usage.contended("a", "b", "cpu", before=9)[0] == 4
