from controller.engine.state.clusters import ClusterName
from controller.engine.state.workloads import WorkloadUid
from controller.simulator.event_queue import EventQueue, PodsTerminated, StatusUpdate, WakeUp


def leaving(name):
    return PodsTerminated(WorkloadUid(name))


def test_events_of_one_time_keep_their_order():
    agenda = EventQueue()
    for at, name in ((5, "c"), (3, "a"), (5, "d"), (3, "b")):
        agenda.push(at, leaving(name))
    assert agenda.next_time == 3
    assert [each.uid for each in agenda.pop_due(3)] == ["a", "b"]
    assert [each.uid for each in agenda.pop_due(5)] == ["c", "d"]
    assert agenda.next_time is None


def test_events_added_during_handling_are_returned_later():
    agenda = EventQueue()
    agenda.push(1, leaving("a"))
    for _ in agenda.pop_due(1):
        agenda.push(1, leaving("b"))
    assert [each.uid for each in agenda.pop_due(1)] == ["b"]


def test_queue_is_idle_with_status_updates_and_wake_ups_only():
    agenda = EventQueue()
    agenda.push(1, WakeUp())
    agenda.push(1, StatusUpdate(ClusterName("m")))
    assert agenda.is_idle
    agenda.push(2, leaving("a"))
    assert not agenda.is_idle
    list(agenda.pop_due(2))
    assert agenda.is_idle
