import queue
import time

import pytest

from localup.watch import Watch
from tests.waiting import LIMIT_SECONDS

PATH = "/api/v1/namespaces/{}/configmaps"


def config_map(name, **data):
    return {"metadata": {"name": name}, "data": data}


@pytest.fixture
def path(namespace):
    return PATH.format(namespace)


def read(events, count):
    found = [events.get(timeout=LIMIT_SECONDS) for _ in range(count)]
    return [(event.change, event.key[1], event.object.get("data")) for event in found]


def test_existing_objects_come_before_changes_in_order(control_plane, path):
    admin, events = control_plane.admin, queue.SimpleQueue()
    admin.create(path, config_map("old"))
    with Watch(control_plane, path, events):
        assert read(events, 1) == [("ADDED", "old", None)]
        admin.create(path, config_map("new", step="1"))
        admin.merge(f"{path}/new", {"data": {"step": "2"}})
        admin.delete(f"{path}/old")
        assert read(events, 3) == [
            ("ADDED", "new", {"step": "1"}),
            ("MODIFIED", "new", {"step": "2"}),
            ("DELETED", "old", None),
        ]


def test_existing_objects_are_delivered_at_the_start(control_plane, path):
    events = queue.SimpleQueue()
    control_plane.admin.create(path, config_map("old"))
    with Watch(control_plane, path, events):
        assert events.get_nowait().key[1] == "old"


def test_changes_during_an_outage_are_delivered_once(fresh_control_plane):
    plane, events = fresh_control_plane(controllers=False), queue.SimpleQueue()
    path = PATH.format("default")
    plane.admin.create(path, config_map("kept"))
    plane.admin.create(path, config_map("lost"))
    with Watch(plane, path, events):
        assert len(read(events, 2)) == 2
        plane.kill()
        plane.restart()
        plane.admin.delete(f"{path}/lost")
        assert read(events, 1) == [("DELETED", "lost", None)]
        assert events.empty()


def test_close_ends_the_watch_immediately(control_plane, path):
    with Watch(control_plane, path, queue.SimpleQueue()) as watch:
        time.sleep(0.2)
        began = time.monotonic()
    assert time.monotonic() - began < 1
    assert not watch._thread.is_alive()
