"""Store and work queue of the stand-in."""

import asyncio

from controller.kube.errors import Conflict
from localup.karmada.cache import Store
from localup.karmada.controller import WorkQueue
from localup.karmada.objects import BINDINGS, StoredObject, merge_patch, same_specification


def item(version, *, uid="u1", name="b", **fields):
    metadata = {"namespace": "a", "name": name, "uid": uid, "resourceVersion": str(version)}
    return StoredObject(metadata=metadata, **fields)


def heard_by(store):
    heard = []

    def listen(old, new):
        heard.append(tuple(entry["metadata"]["resourceVersion"] if entry else None for entry in (old, new)))

    store.add_event_handler(listen)
    return heard


def test_recreated_object_is_a_removal_and_an_addition():
    store = Store(BINDINGS)
    store.upsert(item(1))
    heard = heard_by(store)
    store.upsert(item(5, uid="u2"))
    store.remove(item(4))
    assert heard == [("1", None), (None, "5")]


def test_merge_patch_contains_the_difference():
    old = {"spec": {"clusters": [1], "kept": 1, "gone": 2}, "status": {}}
    new = {"spec": {"clusters": [2], "kept": 1}, "status": {}, "more": 3}
    assert merge_patch(old, new) == {"spec": {"clusters": [2], "gone": None}, "more": 3}
    assert merge_patch(old, old) == {}


def test_status_change_is_no_specification_change():
    assert same_specification(item(1, status={"a": 1}, spec={}), item(2, status={"a": 2}, spec={}))
    assert not same_specification(item(1, spec={}), item(2, spec={"a": 1}))


async def served(queue, until):
    task = asyncio.create_task(queue.serve(2))
    async with asyncio.timeout(2):
        await until.wait()
    task.cancel()


async def test_key_is_processed_once_at_a_time_and_never_lost():
    looked, under_way, done = [], set(), asyncio.Event()

    async def look(key):
        assert key not in under_way
        under_way.add(key)
        await asyncio.sleep(0)
        under_way.discard(key)
        looked.append(key)
        if len(looked) == 1:
            for _ in range(3):
                queue.add(key)
        else:
            done.set()

    queue = WorkQueue("test", look)
    queue.add("k")
    queue.add("k")
    await served(queue, done)
    assert looked == ["k", "k"]


async def test_failed_key_is_retried():
    tries, done = [], asyncio.Event()

    async def look(key):
        tries.append(key)
        if len(tries) == 1:
            raise Conflict("PATCH", 409, "changed meanwhile")
        if len(tries) == 2:
            raise KeyError("an odd object")
        done.set()

    queue = WorkQueue("test", look)
    queue.add("k")
    await served(queue, done)
    assert tries == ["k"] * 3
