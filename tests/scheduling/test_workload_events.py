"""Events about the conditions of bindings."""

from unittest import mock

from controller.cache.store import Store
from controller.scheduling.workload_events import WorkloadEvents
from tests.cache.fake_event_handler import FakeEventHandler, upsert
from tests.cache.objects import binding, job


def test_refused_work_is_reported_once_with_its_reason():
    store, recorder = Store(), mock.Mock()
    WorkloadEvents(store, recorder, may_write=lambda: True)
    upsert(store, ("jobs", job("j1")))
    for message in ("queue {before} not found", "queue not found, again"):
        refused = binding("j1", paused=False, clusters=["m1", "m2"], refused={"m1": message})
        upsert(store, ("bindings", refused))
        store.sync_to(FakeEventHandler(), 0)
    (event,) = (call.args[0] for call in recorder.record.call_args_list)
    assert (event.reason, event.kind) == ("WorkNotApplied", "Warning")
    assert event.note().endswith(": m1: queue {before} not found")
