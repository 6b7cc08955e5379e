from controller.engine.clusters import ClusterName
from controller.engine.workloads import WorkloadUid
from controller.simulator.event_queue import EventQueue, PodsTerminated, StatusUpdate, WakeUp


def leaving(name):
    return PodsTerminated(WorkloadUid(name))


def test_what_is_due_at_one_time_comes_in_the_order_in_which_it_was_put_down():
    agenda = EventQueue()
    for at, name in ((5, "c"), (3, "a"), (5, "d"), (3, "b")):
        agenda.push(at, leaving(name))
    assert agenda.next_time == 3
    assert [each.uid for each in agenda.pop_due(3)] == ["a", "b"]
    assert [each.uid for each in agenda.pop_due(5)] == ["c", "d"]
    assert agenda.next_time is None


def test_what_is_put_down_meanwhile_waits_for_the_next_call():
    agenda = EventQueue()
    agenda.push(1, leaving("a"))
    for _ in agenda.pop_due(1):
        agenda.push(1, leaving("b"))
    assert [each.uid for each in agenda.pop_due(1)] == ["b"]


def test_summaries_and_wake_ups_alone_make_it_idle():
    agenda = EventQueue()
    agenda.push(1, WakeUp())
    agenda.push(1, StatusUpdate(ClusterName("m")))
    assert agenda.is_idle
    agenda.push(2, leaving("a"))
    assert not agenda.is_idle
    list(agenda.pop_due(2))
    assert agenda.is_idle
