"""A collection that is changed by responses to writes while a list is applied."""

from typing import NamedTuple

import pytest

from controller.kube.collection import Collection


class Seen(NamedTuple):
    key: tuple[str, str]
    uid: str
    resource_version: int


def seen(name: str, version: int) -> Seen:
    return Seen(("ns", name), f"uid-{name}", version)


@pytest.fixture
def collection() -> Collection[Seen]:
    collection = Collection[Seen](lambda raw: seen(raw.decode(), 1), lambda *_: None)
    collection.replace([seen("a", 1), seen("b", 1), seen("c", 1)])
    return collection


def versions(collection: Collection[Seen]) -> dict[str, int]:
    return {obj.key[1]: obj.resource_version for obj in collection}


def test_objects_missing_from_a_list_are_deleted_last(collection):
    steps = collection.replace_in_steps([seen("c", 2), seen("d", 2)], unreadable=[("ns", "a")])
    next(steps)
    next(steps)
    assert versions(collection) == {"a": 1, "b": 1, "c": 2, "d": 2}
    assert list(steps) == [None]
    assert versions(collection) == {"a": 1, "c": 2, "d": 2}


def test_changes_between_steps_are_newer_than_the_list(collection):
    steps = collection.replace_in_steps([seen("a", 2), seen("b", 2), seen("c", 2)])
    next(steps)
    collection.remove(seen("b", 3))
    collection.upsert(seen("c", 4))
    collection.upsert(seen("new", 5))
    assert len(list(steps)) == 2
    assert versions(collection) == {"a": 2, "c": 4, "new": 5}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        pytest.param(2, {}, id="late-response-to-a-write"),
        pytest.param(4, {"b": 4}, id="matches-the-selector-again"),
    ],
)
def test_only_later_version_of_a_removed_object_is_stored(version, expected):
    """A watch reports an object that stops matching its selector as deleted, in the version of that change."""
    collection = Collection[Seen](lambda raw: seen(raw.decode(), 1), lambda *_: None)
    collection.upsert(seen("b", 1))
    collection.remove(seen("b", 3))
    collection.upsert(seen("b", version))
    assert versions(collection) == expected


def test_no_version_of_a_forgotten_object_is_stored(collection):
    collection.forget("ns", "b")
    collection.upsert(seen("b", 9))
    assert versions(collection) == {"a": 1, "c": 1}


def test_first_list_is_complete_after_its_last_step():
    collection = Collection[Seen](lambda raw: seen(raw.decode(), 1), lambda *_: None)
    complete = [collection.is_complete for _ in collection.replace_in_steps([seen("a", 1), seen("b", 1)])]
    assert complete == [False, False]
    assert collection.is_complete
