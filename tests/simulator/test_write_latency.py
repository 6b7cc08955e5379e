import pytest

from controller.simulator.write_latency import WriteLatency


def test_without_a_limit_a_write_is_done_at_once():
    writer = WriteLatency(0)
    assert [writer.done_at(7) for _ in range(3)] == [7, 7, 7]


def test_writes_are_done_one_after_the_other():
    writer = WriteLatency(50)
    assert [writer.done_at(100) for _ in range(3)] == [120, 140, 160]
    assert writer.done_at(1000) == 1020


@pytest.mark.parametrize("per_second", [3, 7, 1500])
def test_so_many_writes_take_a_second_whatever_their_number(per_second):
    writer = WriteLatency(per_second)
    assert [writer.done_at(0) for _ in range(per_second)][-1] == 1000
