import pytest

from controller.simulator.simulation import WriteLatency


def test_write_without_limit_completes_at_once():
    writer = WriteLatency(0)
    assert [writer.done_at(7) for _ in range(3)] == [7, 7, 7]


def test_writes_complete_in_sequence():
    writer = WriteLatency(50)
    assert [writer.done_at(100) for _ in range(3)] == [120, 140, 160]
    assert writer.done_at(1000) == 1020


@pytest.mark.parametrize("per_second", [3, 7, 1500])
def test_write_rate_is_exact(per_second):
    writer = WriteLatency(per_second)
    assert [writer.done_at(0) for _ in range(per_second)][-1] == 1000
