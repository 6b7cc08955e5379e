from fractions import Fraction

import pytest

from localup.demo.view import Peak, QueueUsage, UsageHistory


def queue_usage(queue, cpus, *, pending=0, fair_share=0):
    return QueueUsage(queue, {"cpu": cpus * 1000}, {"cpu": Fraction(fair_share * 1000)}, pending=pending)


@pytest.fixture
def usage():
    return UsageHistory()


def test_peak_includes_the_fair_share_at_that_time(usage):
    usage.moments.append((1, [queue_usage("a", 4, fair_share=9)]))
    usage.moments.append((2, [queue_usage("a", 8, fair_share=3)]))
    usage.moments.append((3, [queue_usage("a", 2, fair_share=5)]))
    assert usage.peak("a", "cpu") == Peak(8000, Fraction(3000))


def test_queue_without_usage_has_no_peak(usage):
    usage.moments.append((1, [queue_usage("a", 0)]))
    assert usage.peak("a", "cpu") == Peak()
    assert usage.peak("a", "nvidia.com/gpu") == Peak()


def test_average_usage_is_weighted_by_contended_time(usage):
    usage.moments.append((0, [queue_usage("a", 0, pending=1), queue_usage("b", 0, pending=1)]))  # no usage yet
    usage.moments.append((5, [queue_usage("a", 2, pending=1), queue_usage("b", 4, pending=1)]))
    usage.moments.append((6, [queue_usage("a", 1, pending=1), queue_usage("b", 6, pending=1)]))
    usage.moments.append((9, [queue_usage("a", 9, pending=1), queue_usage("b", 0, pending=0)]))
    usage.moments.append((20, [queue_usage("a", 0), queue_usage("b", 0)]))
    lasted, first, second = usage.contention("a", "b", "cpu")
    assert lasted == 4
    assert (float(first), float(second)) == (1250.0, 5500.0)


def test_without_contention_there_is_no_average(usage):
    usage.moments.append((0, [queue_usage("a", 4), queue_usage("b", 4, pending=3)]))
    usage.moments.append((9, [queue_usage("a", 4), queue_usage("b", 4, pending=3)]))
    assert usage.contention("a", "b", "cpu") is None


def test_contention_ends_at_the_given_time(usage):
    for at in (0, 4, 9):
        usage.moments.append((at, [queue_usage("a", 2, pending=1), queue_usage("b", 4, pending=1)]))
    assert usage.contention("a", "b", "cpu", before=9)[0] == 4
