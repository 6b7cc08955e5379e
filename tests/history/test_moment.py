"""The state before a logged plan, as the replay reproduces it."""

from collections import Counter

import msgspec
import pytest

from controller.engine.state.hierarchy import Queue, QueueName
from controller.history.pages import Filters, HistoryError, read_page
from tests.engine import objects
from tests.history.logs import START, Log, job, moment_at, two_queues, write_random_run


def rows(moment) -> dict[str, tuple[str, int, str]]:
    return {
        workload.name: (workload.queue, workload.position, workload.decision.action if workload.decision else "")
        for workload in moment.pending
    }


def test_moment_shows_order_and_decisions(tmp_path):
    log = two_queues(tmp_path / "log")
    moment = moment_at(log.path, log.now)
    assert (moment.plan, moment.at, moment.identity, moment.is_intact) == (3, log.now, "pod-1", True)
    assert rows(moment) == {"other": ("b", 1, "Admit"), "fourth": ("a", 1, "Wait")}
    waiting = next(workload for workload in moment.pending if workload.name == "fourth")
    assert waiting.decision.reason == "InsufficientCapacity"
    queues = {queue.name: queue for queue in moment.queues}
    assert (queues["a"].pending, queues["a"].admitted, queues["a"].allocated["cpu"]) == (1, 2, "4")
    assert (queues["b"].priority, queues["b"].pending, queues["b"].admitted) == (5, 1, 0)
    assert queues["a"].path == ("root", "a")
    assert moment.clusters[0].allocated["cpu"] == "4"


def test_time_between_plans_shows_the_last_one_before(tmp_path):
    log = two_queues(tmp_path / "log")
    for at, plan in ((START + 1_000, 1), (START + 1_999, 1), (START + 2_000, 2), (START + 10**6, 3)):
        assert moment_at(log.path, at).plan == plan
    with pytest.raises(HistoryError, match="no plan at or before"):
        moment_at(log.path, START + 500)
    with pytest.raises(HistoryError, match="processor time"):
        moment_at(log.path, log.now, seconds=-1)


def test_moment_of_the_former_file_is_found(tmp_path):
    old = two_queues(tmp_path / "log")
    old.path.rename(tmp_path / "log.1")
    new = Log(tmp_path / "log", now=old.now + 1_000)
    new.submit(job("later"))
    new.plan(after=5_000)
    new.write()
    # The new process has made no plan yet.
    assert moment_at(new.path, old.now + 3_000).plan == 3
    assert moment_at(new.path, new.now).plan == 1


def test_requested_workload_is_among_many(tmp_path):
    log = Log(tmp_path / "log")
    log.submit(*(job(f"job-{number:04}", created_at=START + number) for number in range(300)))
    log.plan()
    log.write()
    moment = moment_at(log.path, log.now, ("uid-job-0250",))
    assert len(moment.pending) == 51
    assert moment.omitted == 249
    assert next(workload for workload in moment.pending if workload.name == "job-0250").position == 251


def many_queues(path) -> Log:
    """Return a log with a pending workload in a queue that exists, and in each of 30 that do not."""
    log = Log(path)
    log.world([Queue(name=QueueName("z"))], [])
    log.submit(job("known", "z"), *(job(f"job-{number}", f"absent-{number:02}") for number in range(30)))
    log.plan()
    log.write()
    return log


def test_rows_are_bounded_with_many_queues(tmp_path, monkeypatch):
    monkeypatch.setattr("controller.history.moment._MAX_PENDING", 20)
    log = many_queues(tmp_path / "log")
    found = moment_at(log.path, log.now, ("uid-job-29",))
    assert [workload.queue for workload in found.pending] == [*(f"absent-{n:02}" for n in range(19)), "absent-29", "z"]
    assert found.omitted == 10


def test_rows_are_bounded_in_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("controller.history.moment._MAX_PENDING_BYTES", 100_000)
    log = Log(tmp_path / "log")
    log.world([Queue(name=QueueName("a")), Queue(name=QueueName("b"))], [])
    large = {f"example.com/{'r' * 50}{number:02}": 1 for number in range(100)}
    log.submit(*(objects.workload(f"large-{number}", large, queue="a") for number in range(20)))
    log.submit(*(job(f"job-{number}", "b") for number in range(20)))
    log.plan()
    log.write()
    found = moment_at(log.path, log.now)
    assert len(msgspec.json.encode(found.pending)) < 100_000
    counts = Counter(workload.queue for workload in found.pending)
    assert 1 < counts["a"] < 20
    assert counts["b"] == 20
    assert found.omitted == 20 - counts["a"]


def test_altered_decision_is_reported(tmp_path):
    log = two_queues(tmp_path / "log")
    log.path.write_bytes(log.path.read_bytes().replace(b'"position":1', b'"position":9'))
    assert not moment_at(log.path, log.now).is_intact


@pytest.mark.parametrize("seed", range(3))
def test_decisions_equal_the_recorded_ones(tmp_path, seed):
    path = tmp_path / "log"
    write_random_run(path, seed, events=30, exchanges=seed == 2)
    recorded = read_page(path, Filters(), None, 10_000).items
    for at in sorted({decision.at for decision in recorded})[::5]:
        moment = moment_at(path, at, (), seconds=60)
        assert moment.is_intact
        assert moment.at == at
        wanted = [
            decision
            for decision in recorded
            if decision.at == at and decision.plan == moment.plan and decision.action != "Wait"
        ]
        assert list(moment.decisions) == wanted
