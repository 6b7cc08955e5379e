from controller.kube.event_recorder import EventQueue
from controller.kube.events import EventMessage


def news(uid: str, topic: str = "waits", reason: str = "InsufficientCapacity") -> EventMessage:
    return EventMessage(uid, topic, "Do", reason, (), lambda: f"{uid} {topic}")


def taken(queue: EventQueue) -> list[str]:
    found = []
    while (each := queue.pop()) is not None:
        found.append(each.note())
    return found


def test_latest_message_replaces_earlier_ones():
    queue = EventQueue(10)
    for reason in ("InsufficientCapacity", "QueueClosed"):
        queue.put(news("a", reason=reason))
    assert len(queue) == 1
    last = queue.pop()
    assert last is not None
    assert last.reason == "QueueClosed"


def test_admission_replaces_pending_message():
    queue = EventQueue(10)
    for each in (news("a"), news("b"), news("a", "admitted")):
        assert queue.put(each) is None
    assert taken(queue) == ["b waits", "a admitted"]


def test_evictions_and_warnings_come_first():
    queue = EventQueue(10)
    for each in (news("a"), news("b", "admitted"), news("c", "evicted"), news("d", "warned", "NoRight")):
        queue.put(each)
    assert taken(queue)[:2] == ["c evicted", "d warned"]


def test_different_warnings_of_one_workload_are_kept():
    queue = EventQueue(10)
    for reason in ("One", "Two"):
        queue.put(news("a", "warned", reason))
    assert len(taken(queue)) == 2


def test_full_queue_drops_pending_messages_for_admissions():
    queue = EventQueue(2)
    assert [queue.put(news(uid)) for uid in "ab"] == [None, None]
    late = news("c")
    assert queue.put(late) is late
    gone = queue.put(news("d", "admitted"))
    assert gone is not None
    assert gone.uid == "a"
    assert taken(queue) == ["b waits", "d admitted"]


def test_queue_full_of_evictions_accepts_no_more():
    queue = EventQueue(1)
    queue.put(news("a", "evicted"))
    late = news("b", "evicted")
    assert queue.put(late) is late
