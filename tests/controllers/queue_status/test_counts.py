from dataclasses import replace

import msgspec
import pytest

from controller.cache.objects import CachedQueue, QueueCounts
from controller.cache.store import Store
from controller.controllers.queue_status.counts import count_workloads, queue_counts, status_patch
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import SchedulingRequirements, Workload, WorkloadState, WorkloadUid
from tests.cache import objects

COUNTS = QueueCounts(pending=1, running=2, allocated={"cpu": "3", "memory": "4Gi"})


def cached_queue(**status) -> CachedQueue:
    store = Store()
    obj = {"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}, "spec": {}, "status": status}
    store.queues.upsert(store.queues.decode(objects.raw(obj)))
    (queue,) = store.queues
    return queue


def workload(number: int, state: WorkloadState, queue: str = "a") -> Workload:
    name = f"j{number}"
    return Workload(WorkloadUid(name), "ml", name, "Job", QueueName(queue), SchedulingRequirements(), state=state)


def test_workloads_are_counted_by_queue_and_state():
    workloads = [
        workload(1, WorkloadState.PENDING),
        workload(2, WorkloadState.ADMITTED),
        workload(3, WorkloadState.ADMITTED),
        workload(4, WorkloadState.FINISHED),
        workload(5, WorkloadState.PENDING, "b"),
    ]
    counted = count_workloads(workloads, lambda counted_workload: counted_workload.name == "j3")
    counts = queue_counts(QueueName("a"), counted, {"cpu": 1500, "example.com/gpu": 0})
    assert (counts.pending, counts.inqueue, counts.running, counts.completed) == (1, 1, 1, 1)
    assert counts.allocated == {"cpu": "1500m", "memory": "0"}
    assert queue_counts(QueueName("b"), counted, {}).pending == 1


def test_empty_status_gets_counts_and_state():
    patch = status_patch(cached_queue(), COUNTS)
    assert patch["metadata"] == {"uid": "u", "resourceVersion": "7"}
    assert patch["status"] == {
        "state": "Open",
        "pending": 1,
        "inqueue": 0,
        "running": 2,
        "unknown": 0,
        "completed": 0,
        "allocated": {"cpu": "3", "memory": "4Gi"},
    }


@pytest.mark.parametrize("state", ["Open", "Closed", "Closing", "Unknown"])
def test_state_of_commands_and_users_stays(state):
    patch = status_patch(cached_queue(state=state), COUNTS)
    assert "state" not in patch["status"]


def test_written_status_is_not_written_again():
    patch = status_patch(cached_queue(), COUNTS)
    written = cached_queue(**msgspec.json.decode(msgspec.json.encode(patch["status"])))
    assert status_patch(written, COUNTS) is None
    assert status_patch(written, replace(COUNTS, running=3)) is not None


@pytest.mark.parametrize("amount", ["8", 8])
def test_resource_that_is_not_used_any_more_is_removed(amount):
    status = {"state": "Open", "pending": 1, "inqueue": 0, "running": 2, "unknown": 0, "completed": 0}
    queue = cached_queue(**status, allocated={"cpu": "3", "memory": "4Gi", "example.com/gpu": amount})
    patch = status_patch(queue, COUNTS)
    assert patch["status"]["allocated"]["example.com/gpu"] is None


@pytest.mark.parametrize("status", [{"pending": "many"}, {"allocated": [1]}, {"allocated": {"cpu": {}}}])
def test_unreadable_counts_do_not_close_the_queue(status):
    queue = cached_queue(**status)
    assert (queue.counts, queue.queue.state, queue.decode_error) == (None, "Open", "")
    assert status_patch(queue, COUNTS) is not None
