from localup.karmada.cache import Store
from localup.karmada.objects import BINDINGS, StoredObject


def item(version, uid):
    metadata = {"namespace": "a", "name": "b", "uid": uid, "resourceVersion": version}
    return StoredObject(metadata=metadata)


def test_recreated_object_is_a_removal_and_an_addition():
    store, changes = Store(BINDINGS), []
    store.upsert(item("1", "u1"))
    store.add_event_handler(
        lambda old, new: changes.append([entry and entry["metadata"]["uid"] for entry in (old, new)])
    )
    store.upsert(item("5", "u2"))
    store.remove(item("4", "u1"))
    assert changes == [["u1", None], [None, "u2"]]
