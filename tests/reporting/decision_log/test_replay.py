"""Replaying a decision log reproduces its decisions and detects modifications."""

import dataclasses
import json
from collections.abc import Iterator

import pytest

from controller.engine.state.quota import Quota
from controller.reporting.decision_log import replay as replaying
from controller.reporting.decision_log.log import RecordingHandler
from controller.reporting.decision_log.replay import DecisionLogError, replay
from controller.reporting.decision_log.writer import Item
from tests.reporting.decision_log.recording import RecordedRun, encode

EVENTS = 150
ACTIONS = ["Admit", "Evict", "Wait", "Keep"]


def run(seed: int, *, exchanges: bool = False, file_of: int = 15, events: int = EVENTS) -> RecordedRun:
    """Return a run with some limited plans, several events per plan and several files."""
    random_run = RecordedRun(seed, exchanges=exchanges)
    for number in range(events):
        for _ in range(random_run.dice.choice([1, 1, 1, 4])):
            random_run.apply_event()
        random_run.plan(random_run.dice.choice([None, None, 1, 3]))
        random_run.now += 10
        if number % file_of == file_of - 1:
            if random_run.dice.random() < 0.5:
                random_run.apply_event()
            random_run.start_file()
    return random_run


def compare(seed: int, *, exchanges: bool = False) -> None:
    plans = decisions = 0
    for number, items in enumerate(run(seed, exchanges=exchanges).files):
        result, recorded = replay(encode(items))
        assert not result.notes
        assert not result.differences, f"seed {seed}, file {number}: {result.differences[0]}"
        assert result.is_identical
        plans += result.plans
        decisions += len(recorded)
    assert plans == EVENTS
    assert decisions > EVENTS // 2


@pytest.mark.parametrize("exchanges", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_every_file_is_replayed_to_the_same_decisions(seed, exchanges):
    compare(seed, exchanges=exchanges)


@pytest.mark.long
@pytest.mark.parametrize("exchanges", [False, True])
def test_many_files_are_replayed_to_the_same_decisions(exchanges):
    for seed in range(2000, 2200):
        compare(seed, exchanges=exchanges)


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    """Return a decision log with all kinds of decisions."""
    for seed in range(100):
        encoded = list(encode(run(seed, exchanges=True, file_of=1000, events=30).files[0]))
        if all(where(encoded, type="decision", action=action) for action in ACTIONS):
            return encoded
    raise AssertionError("no run has all kinds of decisions")


def where(lines: list[bytes], **members: object) -> list[int]:
    """Return the indexes of the lines with these members."""
    values = [json.loads(line) for line in lines]
    return [place for place, value in enumerate(values) if members.items() <= value.items()]


def altered(lines: list[bytes], place: int, **members: object) -> list[bytes]:
    value = json.dumps(json.loads(lines[place]) | members).encode() + b"\n"
    return [*lines[:place], value, *lines[place + 1 :]]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    "members",
    [
        {"uid": "uid-0"},
        {"queue": "another"},
        {"request": {"cpu": "1k"}},
        {"used": {"cpu": "1k"}},
        {"limit": {"cpu": "1k"}},
        {"rule": "Z9"},
        {"revision": "000000000000"},
        {"clusters": [{"name": "m9", "replicas": None, "charge": {}}]},
    ],
    ids=lambda members: next(iter(members)),
)
def test_modified_decision_is_named(lines, action, members):
    place = where(lines, type="decision", action=action)[0]
    before = json.loads(lines[place])
    result, _ = replay(altered(lines, place, **members))
    assert not result.is_identical
    difference = result.differences[0]
    assert difference.line == place + 1
    assert difference.recorded["name"] == before["name"]
    assert difference.recorded.items() >= members.items()
    if "uid" not in members:
        assert difference.replayed == {name: value for name, value in before.items() if name != "type"}


def test_removed_admission_is_named(lines):
    place = where(lines, type="decision", action="Admit")[0]
    plan = max(index for index in where(lines, type="plan") if index < place)
    fewer = altered(lines, plan, verdicts=json.loads(lines[plan])["verdicts"] - 1)
    del fewer[place]
    result, _ = replay(fewer)
    excluded_clusters = json.loads(lines[place])["uid"]
    assert any(
        difference.replayed is not None and difference.replayed["uid"] == excluded_clusters
        for difference in result.differences
    )


def test_modified_input_is_detected_without_other_decision(lines):
    place = where(lines, type="begin")[0]
    result, _ = replay(altered(lines, place, identity="another process"))
    assert result.different == 0
    assert not result.is_identical
    assert result.first_tampered_line == where(lines, type="plan")[0] + 1


def test_changed_engine_is_detected(monkeypatch):
    decision_logs = [list(encode(run(seed, file_of=1000).files[0])) for seed in range(3)]
    assert all(replay(decision_log)[0].is_identical for decision_log in decision_logs)
    monkeypatch.setattr(Quota, "refusal", lambda *_: None)
    results = [replay(decision_log)[0] for decision_log in decision_logs]
    assert any(result.different for result in results)
    assert all(result.first_tampered_line is None for result in results)


@pytest.mark.parametrize(("cut", "is_whole"), [(1, True), (2, False), (20, False)])
def test_truncated_last_line_is_skipped_and_noted(lines, cut, is_whole):
    decisions_of_last = json.loads(lines[where(lines, type="plan")[-1]])["verdicts"]
    result, recorded = replay([*lines[:-1], lines[-1][:-cut]])
    assert result.is_identical
    assert len(recorded) == len(replay(lines)[1]) - (0 if is_whole else decisions_of_last)
    assert bool(result.notes) == (not is_whole)
    last_with_decisions = max(place for place in where(lines, type="plan") if json.loads(lines[place])["verdicts"])
    result, _ = replay(lines[: last_with_decisions + 1])
    assert result.is_identical
    assert "truncated" in result.notes[0]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        pytest.param(b"nonsense\n", "it is not JSON", id="no-json"),
        pytest.param(b"[]\n", "not a JSON object", id="no-object"),
        pytest.param(b'{"kind":"Queue"}\n', "this is no decision log", id="no-type"),
        pytest.param(b'{"type":"other"}\n', "'other' is not known", id="unknown-type"),
        pytest.param(b'{"type":"queue"}\n', "missing required field `queue`", id="field-missing"),
        pytest.param(b'{"type":"cluster","cluster":{"name":1},"now":1}\n', "Expected `str`", id="wrong-type"),
        pytest.param(
            b'{"type":"workload","workload":{"requirements":999},"now":1}\n',
            "requirements 999",
            id="unknown-requirements",
        ),
        pytest.param(b'{"type":"decision"}\n', "belongs to no plan", id="stray-decision"),
        pytest.param(b'{"type":"memory","memory":{},"now":1}\n', "not part of a snapshot", id="stray-memory"),
    ],
)
def test_invalid_line_is_named_by_its_number(lines, line, says):
    place = where(lines, type="plan")[5]
    with pytest.raises(DecisionLogError, match=f"line {place + 1}: ") as raised:
        replay([*lines[:place], line, *lines[place:]])
    assert says in str(raised.value)


def without_an_empty_plan(lines: list[bytes]) -> list[bytes]:
    place = next(index for index in where(lines, type="plan")[3:] if not json.loads(lines[index])["verdicts"])
    return [*lines[:place], *lines[place + 1 :]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(lambda lines: [lines[0], *lines], "has one line of type", id="second-header"),
        pytest.param(lambda lines: altered(lines, 0, schema=2), "schema 2 is not supported", id="other-schema"),
        pytest.param(without_an_empty_plan, "cannot follow plan", id="removed-plan"),
        *(
            pytest.param(lambda _, text=text: [text], "line 1: ", id=f"without-header-{number}")
            for number, text in enumerate([b"{}\n", b"\n", b"no decision log"])
        ),
        pytest.param(lambda _: [], "line 1: ", id="empty"),
    ],
)
def test_incomplete_or_foreign_file_is_rejected(lines, change, says):
    with pytest.raises(DecisionLogError, match=says):
        replay(change(lines))


def files_with_snapshot(first: int) -> Iterator[list[Item]]:
    """Yield files that begin with a snapshot, of the runs from seed *first* on."""
    for seed in range(first, first + 40):
        yield from run(seed, exchanges=True).files[1:]


@pytest.mark.parametrize(
    ("missing", "first"),
    [
        pytest.param({"clusters": ()}, 0, id="clusters"),
        pytest.param({"blocked": ()}, 0, id="starvation-timers"),
        pytest.param({"not_fitting_since": ()}, 106, id="resize"),
        pytest.param({"rescheduled": ()}, 0, id="reschedules"),
        pytest.param({"incomplete_gangs": ()}, 0, id="gangs", marks=pytest.mark.long),  # needs many runs
        pytest.param({"usability_changed_at": None}, 4, id="cluster-usability"),
    ],
)
def test_incomplete_history_in_snapshot_is_detected(missing, first, monkeypatch):
    """Prove that the replays above need all of the history in the snapshot."""
    rebuild = replaying.restore

    def incomplete(policy, queues, workloads, history, now):
        return rebuild(policy, queues, workloads, dataclasses.replace(history, **missing), now)

    monkeypatch.setattr(replaying, "restore", incomplete)
    assert any(not replay(encode(items))[0].is_identical for items in files_with_snapshot(first))


@pytest.mark.parametrize(
    "event",
    [
        "policy_changed",
        "queue_changed",
        "queue_removed",
        "cluster_changed",
        "cluster_removed",
        "workload_changed",
        "workload_removed",
    ],
)
def test_unrecorded_event_is_detected(event, monkeypatch):
    def unrecorded(self: RecordingHandler, *arguments: object, **options: object) -> None:
        getattr(self._engine, event)(*arguments, **options)

    monkeypatch.setattr(RecordingHandler, event, unrecorded)
    random_runs = (run(seed, exchanges=seed % 2 == 1, file_of=1000) for seed in range(40))
    assert any(not replay(encode(random_run.files[0]))[0].is_identical for random_run in random_runs)
