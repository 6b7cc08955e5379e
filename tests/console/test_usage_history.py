"""The usage of queues over time takes little memory, and none for queues that are no longer used."""

import tracemalloc

from console.usage_history import UsageHistory
from controller.engine.state.hierarchy import QueueName


def test_usage_is_kept_for_the_last_times():
    history = UsageHistory(3)
    for at, usage in enumerate([{}, {"a": {"cpu": 5}}, {"a": {"cpu": 7}, "b": {"cpu": 0}}, {"b": {"cpu": 2**70}}]):
        history.append(at, usage)
    assert history.times == (1, 2, 3)
    assert [*history.amounts(QueueName("a"), "cpu")] == [5, 7, 0]
    assert [*history.amounts(QueueName("b"), "cpu")] == [0, 0, 2**63 - 1]
    assert [*history.amounts(QueueName("b"), "memory")] == [0, 0, 0]


def test_queues_without_usage_take_no_memory():
    history = UsageHistory(20)
    tracemalloc.start()
    for at in range(60):
        history.append(at, {f"queue-{at}-{number}": {"cpu": at + 1, "memory": 2**40} for number in range(20)})
        if at == 45:
            before = tracemalloc.get_traced_memory()[0]
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000
