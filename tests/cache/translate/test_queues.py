"""Every field of a Queue and every task of a Job reaches the engine."""

import json

import pytest

from controller.cache.store import Store
from controller.engine.state.hierarchy import ROOT, Queue, QueueState
from tests.cache import objects
from tests.cache.objects import queue
from tests.cache.translate.test_amounts import UNREADABLE


def test_all_queue_fields_are_read():
    decoded = Store().queues.decode(
        queue(
            "a",
            parent="team",
            weight=3,
            priority=10,
            capability={"cpu": 8, "memory": "16Gi"},
            deserved={"nvidia.com/gpu": "2"},
            guarantee={"resource": {"cpu": "500m"}},
            reclaimable=False,
            dequeueStrategy="fifo",
        )
    )
    assert decoded.decode_error == ""
    assert decoded.queue == Queue(
        "a",
        "team",
        weight=3,
        priority=10,
        capability={"cpu": 8000, "memory": 16 * 2**30},
        deserved={"nvidia.com/gpu": 2000},
        guarantee={"cpu": 500},
        reclaimable=False,
        fifo=True,
    )
    assert Store().queues.decode(queue("a")).queue == Queue("a", ROOT)


@pytest.mark.parametrize(
    ("state", "metadata", "expected"),
    [
        pytest.param("", {}, QueueState.OPEN, id="empty-is-open"),
        pytest.param("Open", {}, QueueState.OPEN, id="open"),
        pytest.param("Open", {"deletionTimestamp": objects.CREATED}, QueueState.CLOSING, id="being-deleted"),
        pytest.param("Closed", {"deletionTimestamp": objects.CREATED}, QueueState.CLOSED, id="closed-then-deleted"),
        pytest.param("Closing", {}, QueueState.CLOSING, id="closing"),
        pytest.param("Ajar", {}, QueueState.UNKNOWN, id="a-word-nobody-knows"),
    ],
)
def test_queue_state(state, metadata, expected):
    manifest = json.loads(queue("a", state=state))
    manifest["metadata"] |= metadata
    assert Store().queues.decode(objects.raw(manifest)).queue.state is expected


@pytest.mark.parametrize("amount", UNREADABLE)
@pytest.mark.parametrize("place", ["capability", "deserved"])
def test_queue_with_invalid_quantity_has_unknown_state(place, amount):
    decoded = Store().queues.decode(queue("a", **{place: {"cpu": amount}, "parent": "team"}))
    assert decoded.queue.state is QueueState.UNKNOWN
    assert place in decoded.decode_error


def test_all_tasks_of_a_job_are_counted():
    manifest = json.loads(objects.job())
    (task,) = manifest["spec"]["tasks"]
    manifest["spec"]["tasks"] = [{**task, "name": name} for name in "ab"]
    requests = Store().jobs.decode(objects.raw(manifest)).requests
    assert requests.total["cpu"] == 2000
