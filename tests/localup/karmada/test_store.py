"""Store and work queue of the stand-in."""

from localup.karmada.cache import Store
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
