from controller.engine.clusters import ClusterName
from controller.engine.workloads import WorkloadUid
from controller.simulator.agenda import Agenda, Departure, Status, Wake


def leaving(name):
    return Departure(WorkloadUid(name))


def test_what_is_due_at_one_time_comes_in_the_order_in_which_it_was_put_down():
    agenda = Agenda()
    for at, name in ((5, "c"), (3, "a"), (5, "d"), (3, "b")):
        agenda.put(at, leaving(name))
    assert agenda.next_time == 3
    assert [each.uid for each in agenda.take(3)] == ["a", "b"]
    assert [each.uid for each in agenda.take(5)] == ["c", "d"]
    assert agenda.next_time is None


def test_what_is_put_down_meanwhile_waits_for_the_next_call():
    agenda = Agenda()
    agenda.put(1, leaving("a"))
    for _ in agenda.take(1):
        agenda.put(1, leaving("b"))
    assert [each.uid for each in agenda.take(1)] == ["b"]


def test_summaries_and_wake_ups_alone_make_it_idle():
    agenda = Agenda()
    agenda.put(1, Wake())
    agenda.put(1, Status(ClusterName("m")))
    assert agenda.is_idle
    agenda.put(2, leaving("a"))
    assert not agenda.is_idle
    list(agenda.take(2))
    assert agenda.is_idle
