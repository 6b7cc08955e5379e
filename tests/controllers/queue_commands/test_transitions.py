import pytest

from controller.api.queues import Queue, decode_queue
from controller.controllers.queue_commands.transitions import (
    CLOSED_BY_PARENT,
    CommandError,
    QueueHierarchy,
    close_queue,
    open_queue,
)
from tests.cache.objects import raw


def queue(name: str, parent: str = "", state: str = "", *, by_parent: str | None = None) -> Queue:
    annotations = {} if by_parent is None else {CLOSED_BY_PARENT: by_parent}
    meta = {"name": name, "annotations": annotations}
    return decode_queue(raw({"metadata": meta, "spec": {"parent": parent}, "status": {"state": state}}))


def told(changes) -> list[tuple[str, str | None, str | None]]:
    return [(change.queue, change.state and change.state.value, change.by_parent) for change in changes]


@pytest.mark.parametrize(
    ("state", "busy", "expected"),
    [
        pytest.param("", False, "Closed", id="new"),
        pytest.param("Open", False, "Closed", id="empty"),
        pytest.param("Open", True, "Closing", id="with-workloads"),
        pytest.param("Closing", True, "Closing", id="still-closing"),
        pytest.param("Unknown", False, "Closed", id="unknown"),
        pytest.param("Closed", False, "Closed", id="closed-already"),
    ],
)
def test_queue_is_closed_when_it_has_no_workloads(state, busy, expected):
    hierarchy = QueueHierarchy.of([queue("a", state=state)])
    assert told(close_queue(hierarchy, "a", lambda _: busy)) == [("a", expected, None)]


@pytest.mark.parametrize("state", ["", "Open", "Closing", "Closed", "Unknown"])
def test_queue_opens_from_any_state(state):
    assert told(open_queue(QueueHierarchy.of([queue("a", state=state)]), "a")) == [("a", "Open", None)]


def test_descendants_close_with_queue_and_are_annotated():
    hierarchy = QueueHierarchy.of(
        [queue("a"), queue("b", "a"), queue("c", "b"), queue("shut", "a", "Closed"), queue("other")]
    )
    assert told(close_queue(hierarchy, "a", lambda name: name == "c")) == [
        ("a", "Closed", None),
        ("b", "Closed", "true"),
        ("c", "Closing", "true"),
    ]


def test_only_what_the_queues_do_not_show_is_written():
    hierarchy = QueueHierarchy.of([queue("a", state="Open"), queue("b", "a", "Open", by_parent="true")])
    assert told(hierarchy.missing(open_queue(hierarchy, "a"))) == [("b", None, "false")]


def test_only_descendants_closed_with_queue_open_with_it():
    hierarchy = QueueHierarchy.of(
        [
            queue("a", state="Closed"),
            queue("b", "a", "Closed", by_parent="true"),
            queue("c", "b", "Closing", by_parent="true"),
            queue("shut", "a", "Closed"),
            queue("again", "a", "Closed", by_parent="false"),
        ]
    )
    assert told(open_queue(hierarchy, "a")) == [("a", "Open", None), ("b", "Open", "false"), ("c", "Open", "false")]


@pytest.mark.parametrize("state", ["Closed", "Closing"])
def test_queue_below_closed_parent_cannot_be_opened(state):
    hierarchy = QueueHierarchy.of([queue("a", state=state), queue("b", "a", "Closed")])
    with pytest.raises(CommandError, match="its parent 'a' is closed; open the parent first"):
        open_queue(hierarchy, "b")


def test_root_queue_cannot_be_closed():
    with pytest.raises(CommandError, match="close its children"):
        close_queue(QueueHierarchy.of([queue("root"), queue("a")]), "root", lambda _: False)


def test_cyclic_hierarchy_terminates():
    hierarchy = QueueHierarchy.of([queue("a", "b"), queue("b", "a")])
    assert [change.queue for change in close_queue(hierarchy, "a", lambda _: False)] == ["a", "b"]
