"""Every field of a Queue and every task of a Job reaches the engine."""

import msgspec

from controller.api.jobs import decode_job
from controller.api.queues import Queue
from controller.cache.translate.queues import translate_queue
from controller.cache.translate.templates import JobTranslator
from controller.engine.state.hierarchy import QueueState
from tests.cache import objects

SPEC = {
    "parent": "research",
    "weight": 3,
    "priority": 7,
    "capability": {"cpu": "4"},
    "deserved": {"cpu": "3"},
    "guarantee": {"resource": {"cpu": "2"}},
    "reclaimable": False,
}


def queue(**metadata: str) -> Queue:
    manifest = {"metadata": {"name": "q", "uid": "u", "resourceVersion": "1", **metadata}, "spec": SPEC}
    return msgspec.json.decode(msgspec.json.encode(manifest), type=Queue)


def test_all_fields_of_a_queue_are_translated():
    value = translate_queue(queue()).queue
    assert (value.parent, value.weight, value.priority, value.reclaimable) == ("research", 3, 7, False)
    assert [amounts["cpu"] for amounts in (value.capability, value.deserved, value.guarantee)] == [4000, 3000, 2000]
    assert value.state is QueueState.OPEN


def test_queue_that_is_being_deleted_is_closing():
    assert translate_queue(queue(deletionTimestamp=objects.CREATED)).queue.state is QueueState.CLOSING


def test_all_tasks_of_a_job_are_counted():
    manifest = msgspec.json.decode(objects.job())
    (task,) = manifest["spec"]["tasks"]
    once = JobTranslator().translate(decode_job(msgspec.json.encode(manifest)))
    manifest["spec"]["tasks"] = [{**task, "name": name} for name in "ab"]
    twice = JobTranslator().translate(decode_job(msgspec.json.encode(manifest)))
    assert once.requests is not None
    assert twice.requests is not None
    assert twice.requests.total["cpu"] == 2 * once.requests.total["cpu"]
