"""Pages of the decision log: complete, filtered, bounded, and continued after rotation."""

import json

import pytest

from controller.history import pages
from controller.history.pages import Filters, HistoryError, Position, read_page
from controller.reporting.decision_log.replay import recorded_decisions
from tests.history.logs import Log, job, two_queues, write_random_run


def recorded(path) -> list[tuple[int, str, str]]:
    """Return time, action and uid of all decisions in the files, by the replay's reader."""
    decisions = []
    files = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, 20))]
    for file in (file for file in reversed(files) if file.exists()):
        with file.open("rb") as lines:
            decisions += recorded_decisions(lines, lambda _: True)[1]
    return [(decision.at, decision.fields["action"], decision.fields["uid"]) for decision in decisions]


def read_all(path, filters=None, *, limit=7, after=None):
    decisions, number = [], 0
    while True:
        page = read_page(path, filters or Filters(), after, limit)
        decisions += page.items
        after, number = Position.parse(page.position), number + 1
        if page.is_complete:
            return decisions, number


def keys(decisions):
    return [(decision.at, decision.action, decision.uid) for decision in decisions]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "decisions.jsonl"
    write_random_run(path, events=60)
    return path


def test_pages_have_every_decision_once_and_in_order(log):
    decisions, number = read_all(log)
    assert keys(decisions) == recorded(log)
    assert number > 5


@pytest.mark.parametrize("field", ["queue", "namespace", "kind", "name", "action"])
def test_filter_selects_what_has_the_value(log, field):
    everything, _ = read_all(log, limit=1000)
    for value in {getattr(decision, field) for decision in everything}:
        selected, _ = read_all(log, Filters(**{field: value}))
        assert keys(selected) == keys(decision for decision in everything if getattr(decision, field) == value)


def test_time_range_selects_its_plans(log):
    everything, _ = read_all(log, limit=1000)
    since, until = everything[len(everything) // 3].at, everything[len(everything) // 2].at
    selected, _ = read_all(log, Filters(since=since, until=until))
    assert keys(selected) == keys(decision for decision in everything if since <= decision.at <= until)


def test_page_reads_a_bounded_number_of_bytes(log, monkeypatch):
    monkeypatch.setattr(pages, "_PAGE_BYTES", 2_000)
    selected, number = read_all(log, Filters(name="nothing"))
    assert not selected
    assert number > 10
    assert keys(read_all(log, limit=1000)[0]) == recorded(log)


def test_position_continues_with_what_was_written_later(tmp_path):
    log = two_queues(tmp_path / "log")
    before, _ = read_all(log.path)
    end = read_page(log.path, Filters(), None, 1000).position
    log.remove("uid-second")
    log.plan()
    log.write()
    after, _ = read_all(log.path, after=Position.parse(end))
    assert [(decision.action, decision.name) for decision in after if decision.action == "Admit"] == [
        ("Admit", "fourth")
    ]
    assert keys(before + after) == recorded(log.path)


def test_unfinished_line_is_read_when_it_is_complete(tmp_path):
    log = two_queues(tmp_path / "log")
    whole = log.path.read_bytes()
    for cut in (1, 40, len(whole) // 3, len(whole) // 2):
        log.path.write_bytes(whole[:-cut])
        first = read_page(log.path, Filters(), None, 1000)
        log.path.write_bytes(whole)
        rest = read_page(log.path, Filters(), Position.parse(first.position), 1000)
        assert keys((*first.items, *rest.items)) == recorded(log.path)


def test_position_survives_rotation(tmp_path):
    old = two_queues(tmp_path / "log")
    page = read_page(old.path, Filters(), None, 2)
    old.path.rename(tmp_path / "log.1")
    new = Log(tmp_path / "log", now=old.now + 5, identity="pod-2")
    new.submit(job("later"))
    new.plan()
    new.write()
    rest, _ = read_all(new.path, after=Position.parse(page.position))
    assert keys((*page.items, *rest)) == recorded(new.path)
    (tmp_path / "log.1").unlink()
    gap = read_page(new.path, Filters(), Position.parse(page.position), 1000)
    assert gap.is_gap
    assert [decision.name for decision in gap.items] == ["later"]


def test_position_is_known_between_two_renames_of_a_rotation(tmp_path):
    old = two_queues(tmp_path / "log")
    first = read_page(old.path, Filters(), None, 2)
    old.path.rename(tmp_path / "log.2")
    new = Log(tmp_path / "log", now=old.now + 5)
    new.write()
    page = read_page(new.path, Filters(), Position.parse(first.position), 1000)
    assert not page.is_gap
    assert keys((*first.items, *page.items)) == recorded(new.path)


def test_file_after_a_clock_was_set_back_is_the_newest(tmp_path):
    old = two_queues(tmp_path / "log")
    first, _ = read_all(old.path)
    end = read_page(old.path, Filters(), None, 1000).position
    old.path.rename(tmp_path / "log.1")
    new = Log(tmp_path / "log", now=old.items[0].header.at - 60_000, identity="pod-2")
    new.submit(job("later"))
    new.plan()
    new.write()
    page = read_page(new.path, Filters(), Position.parse(end), 1000)
    assert ([decision.name for decision in page.items], page.identity) == (["later"], "pod-2")
    assert keys((*first, *page.items)) == recorded(new.path)
    new.submit(job("latest"))
    new.plan()
    new.write()
    assert [decision.name for decision in read_page(new.path, Filters(), Position.parse(page.position), 9).items] == [
        "latest"
    ]


@pytest.mark.parametrize("text", ["", "1", "1-2", "a-b-c", "1-2-3-4", "1-2-" + "9" * 16, "-1-2-3", "1-2-3\n"])
def test_invalid_position_is_refused(text):
    with pytest.raises(ValueError, match="position of an earlier answer"):
        Position.parse(text)


def test_position_inside_a_line_is_refused(tmp_path):
    log = two_queues(tmp_path / "log")
    with pytest.raises(ValueError, match="position of an earlier answer"):
        read_page(log.path, Filters(), Position(log.items[0].header.at, 17, 0), 10)


def test_missing_and_foreign_files_are_named(tmp_path):
    with pytest.raises(HistoryError, match="no decision log yet"):
        read_page(tmp_path / "log", Filters(), None, 10)
    (tmp_path / "log").write_text(json.dumps({"kind": "List"}) + "\n")
    with pytest.raises(HistoryError, match="not that of a decision log"):
        read_page(tmp_path / "log", Filters(), None, 10)
