"""The gang minimum of a task."""

import pytest

from controller.api.jobs import PartitionPolicy, Task


@pytest.mark.parametrize(
    ("policy", "min_available", "minimum"),
    [
        pytest.param(None, None, 8, id="all-pods"),
        pytest.param(None, 3, 3, id="the-minimum-is-set"),
        pytest.param(PartitionPolicy(partition_size=2, min_partitions=2), None, 4, id="partitions"),
        pytest.param(PartitionPolicy(partition_size=2, min_partitions=2), 2, 2, id="minimum-precedes-partitions"),
        pytest.param(PartitionPolicy(partition_size=2), None, 8, id="no-least-number-of-partitions"),
        pytest.param(PartitionPolicy(partition_size=-2, min_partitions=-2), None, 8, id="negative-partitions"),
    ],
)
def test_task_minimum_follows_partitions(policy, min_available, minimum):
    task = Task(replicas=8, min_available=min_available, partition_policy=policy)
    assert task.effective_min_available == minimum
