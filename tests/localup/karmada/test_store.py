"""What the stand-in knows of objects, and how it gets around to looking at them."""

import asyncio

from controller.kube import Conflict
from localup.karmada.kinds import BINDING
from localup.karmada.objects import merge_patch, same_specification
from localup.karmada.store import Store
from localup.karmada.workqueue import WorkQueue


def item(version, *, uid="u1", name="b", **fields):
    metadata = {"namespace": "a", "name": name, "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata, **fields}


def heard_by(store):
    heard = []

    def listen(old, new):
        heard.append(tuple(entry["metadata"]["resourceVersion"] if entry else None for entry in (old, new)))

    store.add_event_handler(listen)
    return heard


def test_news_older_than_an_answer_to_us_is_not_news():
    store = Store(BINDING)
    store.upsert(item(1))
    heard = heard_by(store)
    store.observe(item(3))
    store.upsert(item(2))
    store.upsert(item(3))
    assert heard == [("1", "3")]


def test_an_answer_does_not_bring_back_what_is_gone():
    store = Store(BINDING)
    store.upsert(item(1))
    store.remove(item(2))
    store.observe(item(2))
    assert list(store) == []


def test_another_object_of_the_name_is_a_removal_and_an_arrival():
    store = Store(BINDING)
    store.upsert(item(1))
    heard = heard_by(store)
    store.upsert(item(5, uid="u2"))
    store.remove(item(4))
    assert heard == [("1", None), (None, "5")]


def test_a_new_list_removes_what_it_lacks():
    store = Store(BINDING)
    store.replace([item(1), item(2, name="c", uid="u2")])
    heard = heard_by(store)
    store.replace([item(1)])
    assert heard == [("2", None)]


def test_a_difference_is_what_a_merge_patch_needs():
    old = {"spec": {"clusters": [1], "kept": 1, "gone": 2}, "status": {}}
    new = {"spec": {"clusters": [2], "kept": 1}, "status": {}, "more": 3}
    assert merge_patch(old, new) == {"spec": {"clusters": [2], "gone": None}, "more": 3}
    assert merge_patch(old, old) == {}


def test_a_status_is_no_specification():
    assert same_specification(item(1, status={"a": 1}, spec={}), item(2, status={"a": 2}, spec={}))
    assert not same_specification(item(1, spec={}), item(2, spec={"a": 1}))


async def served(queue, until):
    task = asyncio.create_task(queue.serve(2))
    async with asyncio.timeout(2):
        await until.wait()
    task.cancel()


async def test_a_key_is_never_in_two_hands_and_never_lost():
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


async def test_what_fails_is_tried_again():
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
