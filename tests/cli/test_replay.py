"""Output and exit codes of `replay`, and of `history` on files."""

import io
import json
from pathlib import Path

import pytest
import yaml

from controller.cli.render.output import PLAIN
from controller.cli.render.replay import DecisionHistory, RecordedDecisionReport, history_text
from controller.engine.state.hierarchy import Queue, QueueName
from tests.history.logs import START, Log, cluster, job
from tests.reporting.decision_log.recording import RecordedRun, encode


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    random_run = RecordedRun(0, exchanges=True)
    for _ in range(30):
        random_run.apply_event()
        random_run.plan()
        random_run.now += 10
    return list(encode(random_run.files[0]))


@pytest.fixture
def decision_log(tmp_path, lines):
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def alter(lines: list[bytes], index: int, **members: object) -> bytes:
    altered = json.dumps(json.loads(lines[index]) | members).encode() + b"\n"
    return b"".join([*lines[:index], altered, *lines[index + 1 :]])


def test_unchanged_log_replays_as_same(run, decision_log, lines):
    ended = run("replay", str(decision_log))
    head, row = map(str.split, ended.out.splitlines())
    assert (ended.code, head[0], row[0], row[-1]) == (0, "FILE", str(decision_log), "same")
    answer = run("replay", str(decision_log), "-o", "json").answer
    types = [json.loads(line)["type"] for line in lines]
    (file,) = answer["files"]
    assert (answer["same"], answer["history"]) == (True, None)
    assert file["plans"] == types.count("plan") == 30
    assert file["decisions"] == types.count("decision") > 30
    assert (file["different"], file["alteredBefore"], file["differences"], file["warnings"]) == (0, None, [], [])
    assert yaml.safe_load(run("replay", str(decision_log), "-o", "yaml").out) == answer


@pytest.mark.parametrize("arguments", [("replay", "missing"), ("history", "ml/j", "-f", "missing")])
def test_format_of_lists_is_refused_before_a_log_is_read(run, arguments):
    ended = run(*arguments, "-o", "name")
    assert (ended.code, "-o name is for lists of objects" in ended.err) == (2, True)


def test_altered_decision_is_shown_with_both_values(run, decision_log, lines):
    recorded = list(map(json.loads, lines))
    index, entry = next((index, logged) for index, logged in enumerate(recorded) if logged.get("action") == "Admit")
    decision_log.write_bytes(alter(lines, index, queue="another"))
    ended = run("replay", str(decision_log))
    assert ended.code == 1
    assert "DIFFERENT" in ended.out
    assert f"line {index + 1}: Job {entry['namespace']}/{entry['name']}, plan " in ended.out
    assert f'queue: recorded "another", replayed "{entry["queue"]}"' in ended.out
    [file] = json.loads(run("replay", str(decision_log), "-o", "json").out)["files"]
    difference = file["differences"][0]
    assert (difference["recorded"]["queue"], difference["replayed"]["queue"]) == ("another", entry["queue"])


def test_altered_input_is_reported(run, decision_log, lines):
    decision_log.write_bytes(alter(lines, 0, identity="another"))
    ended = run("replay", str(decision_log))
    assert ended.code == 1
    assert "ALTERED" in ended.out
    assert "the file was altered before line" in ended.out


def test_time_beyond_the_calendar_is_shown_as_its_end(run, decision_log, lines):
    index = max(index for index, line in enumerate(lines) if json.loads(line)["type"] == "plan")
    decision_log.write_bytes(alter(lines, index, now=10**20))
    ended = run("replay", str(decision_log), "-o", "json")
    assert ended.err == ""
    assert json.loads(ended.out)["files"][0]["until"] == "9999-12-31T23:59:59Z"


def test_incomplete_last_line_is_reported_and_ignored(run, decision_log, lines):
    decision_log.write_bytes(b"".join(lines)[:-20])
    ended = run("replay", str(decision_log))
    assert ended.code == 0
    assert "truncated" in ended.out


@pytest.mark.parametrize("command", [["replay"], ["history", "ml/train", "-f"]], ids=["replay", "history"])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(b"", "line 1: the file is empty", id="empty"),
        pytest.param(b"kind: Queue\n", "line 1: it is not JSON", id="no-decision-log"),
        pytest.param(b'{"type":"plan"}\n', "line 1: ", id="no-beginning"),
        pytest.param(b"\xff\xfe\n", "line 1: ", id="no-text"),
        pytest.param(b'{"type":[]}\n', "line 1: type [] is not known", id="no-type"),
        pytest.param(None, "", id="missing"),
    ],
)
def test_invalid_log_is_rejected_with_its_line(run, tmp_path, command, text, says):
    path = tmp_path / "some"
    if text is not None:
        path.write_bytes(text)
    ended = run(*command, str(path))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"{path}: {says}")


def test_invalid_line_is_rejected_with_its_number(run, decision_log, lines, monkeypatch):
    altered = b"".join([*lines[:10], b"nonsense\n", *lines[10:]])
    decision_log.write_bytes(altered)
    ended = run("replay", str(decision_log))
    assert ended.code == 2
    assert "line 11: " in ended.err
    for command in (["replay", "-"], ["history", "ml/any"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(altered)))
        assert run(*command).err.startswith("standard input: line 11: ")


def two_files(folder, *, plans: int, begin: int) -> list[Path]:
    """Return the files of a decision log with *plans*; the second one begins after plan number *begin*."""
    random_run = RecordedRun(0, exchanges=True)
    for number in range(plans):
        random_run.apply_event()
        random_run.plan()
        random_run.now += 10
        if number == begin:
            random_run.start_file()
    paths = [folder / f"d.{number}" for number in range(len(random_run.files))]
    for path, items in zip(paths, random_run.files, strict=True):
        path.write_bytes(b"".join(encode(items)))
    return paths


def test_workload_history_spans_all_files(run, tmp_path):
    paths = two_files(tmp_path, plans=40, begin=20)
    entries = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    workloads = [(logged["namespace"], logged["name"]) for logged in entries if logged["type"] == "decision"]
    namespace, name = max(workloads, key=workloads.count)
    ended = run("replay", *map(str, reversed(paths)), "--workload", f"{namespace}/{name}", "-o", "json")
    history = ended.answer["history"]
    assert len(history) == workloads.count((namespace, name)) > 1
    assert {recorded["decision"]["name"] for recorded in history} == {name}
    assert [recorded["time"] for recorded in history] == sorted(recorded["time"] for recorded in history)
    printed = run("replay", *map(str, paths), "-w", f"{namespace}/{name}").out
    assert printed.count(history[0]["decision"]["queue"]) >= len(history)
    assert "no decision about that workload" in run("replay", str(paths[0]), "-w", "no/job").out


def test_decisions_of_one_second_are_in_their_order(run, tmp_path):
    paths = two_files(tmp_path, plans=12, begin=5)
    decided = []
    for path in paths:
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        decided.append(
            {f"{logged['namespace']}/{logged['name']}" for logged in entries if logged["type"] == "decision"}
        )
    job = min(set.intersection(*decided))
    newest_first = [str(path) for path in reversed(paths)]
    decisions = run("history", job, "-f", newest_first[0], "-f", newest_first[1], "-o", "json").answer["decisions"]
    assert len({decision["time"] for decision in decisions}) == 1
    for listed in decisions, run("replay", *newest_first, "-w", job, "-o", "json").answer["history"]:
        assert [decision["plan"] for decision in listed] == sorted(decision["plan"] for decision in listed)


def test_history_finds_a_workload_without_namespace(run, tmp_path):
    log = Log(tmp_path / "log")
    log.world([Queue(name=QueueName("a"))], [cluster("m1", 8)])
    log.submit(job("train", namespace=""), job("train", namespace="default", uid="other"))
    log.plan()
    log.write()
    file = str(log.path)
    for words, uids in ((["train"], ["other", "uid-train"]), (["default/train"], ["other"]), (["no/train"], [])):
        decisions = run("history", *words, "-f", file, "-o", "json").answer["decisions"]
        assert sorted(recorded["decision"]["uid"] for recorded in decisions) == uids


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"rule": "P5", "nominatedCluster": "m1", "nominatedAt": START}, "nominated to m1"),
        ({"rule": "P5"}, "nomination ended"),
        ({"rule": "O6", "reservedSince": START, "reservedCluster": "m1, m2"}, "reserved on m1, m2"),
        ({"rule": "O6"}, "reservation ended"),
    ],
)
def test_history_says_what_begins_or_ends(fields, says):
    decided = RecordedDecisionReport("2026-09-21T14:13:20Z", "log", 1, 1, {"action": "Keep", **fields})
    assert history_text(DecisionHistory((decided,), ()), PLAIN).rstrip().endswith(says)
