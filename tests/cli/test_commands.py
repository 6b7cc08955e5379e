"""Commands at their edges: what is not there, terminals, pipes, and how they explain."""

import io
import json
import os
import subprocess
import sys

import pytest

from controller.cli.output import Cell, Column, OutputStyle, escape, output_style, paragraph, table
from tests.cli.manifests import NOW, binding, cluster, job, jobs, priority_class, queue, running, write
from tests.waiting import LIMIT_SECONDS

CPU = {"cpu": 1}


@pytest.fixture
def state(tmp_path):
    """Return the path of a file with one job that runs and two that wait."""
    return write(
        tmp_path,
        cluster("m", {"cpu": 4}, used={"cpu": 2}),
        queue("research", capability={"cpu": 4}),
        *running("eval", {"cpu": 2}, on="m", queue="research"),
        job("train", {"cpu": 3}, queue="research"),
        job("tune", {"cpu": 3}, queue="research"),
    )


# -- what is not there --------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["trian", "-n", "ml"], "Job ml/trian does not exist; did you mean train?", id="near"),
        pytest.param(["train"], "Job default/train does not exist; there is one in ml", id="elsewhere"),
        pytest.param(
            ["xyz", "-n", "ml"], "Job ml/xyz does not exist; namespace ml has eval, train, tune", id="nothing-near"
        ),
        pytest.param(
            ["xyz", "-n", "lab"], "Job lab/xyz does not exist; namespace lab has no job at all", id="empty-namespace"
        ),
    ],
)
def test_a_job_that_is_not_there_is_named_with_what_is(run, state, arguments, expected):
    ended = run("explain", "job", *arguments, "-f", state)
    assert (ended.code, ended.out, ended.err) == (1, "", f"{expected}\n")


def test_a_job_that_waits_for_nobody_is_said_to(run, tmp_path):
    path = write(tmp_path, queue("default"), job("j", CPU), binding("j", paused=False))
    ended = run("explain", "job", "j", "-n", "ml", "-f", path)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "Job ml/j is not held back: its binding is neither paused nor placed, Karmada places it\n"


def test_a_queue_that_is_not_there_is_named_with_what_is(run, state):
    ended = run("pending", "--queue", "reserch", "-f", state)
    assert (ended.code, ended.out, ended.err) == (1, "", "queue reserch does not exist; there is research\n")


def test_a_queue_that_is_only_waited_for_is_listed(run, tmp_path):
    path = write(tmp_path, job("j", CPU, queue="gone"))
    ended = run("pending", "--queue", "gone", "-f", path, "-o", "json")
    assert [each["reason"] for each in ended.answer["pending"]] == ["QueueNotFound"]


def test_without_files_or_a_kubeconfig_there_is_nothing_to_look_at(run, tmp_path):
    ended = run("plan", "--kubeconfig", str(tmp_path / "none"))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.endswith("no such file; name files with -f to do without a control plane\n")


@pytest.mark.parametrize("command", ["plan", "queues", "pending", "clusters"])
def test_an_empty_world_is_said_to_be_empty(run, tmp_path, command):
    path = tmp_path / "empty.yaml"
    path.write_text("apiVersion: v1\nkind: List\nitems: []\n---\napiVersion: v1\nkind: ConfigMap\n")
    ended = run(command, "-f", str(path))
    assert (ended.code, ended.err) == (0, "")
    assert "Traceback" not in ended.out


# -- explaining ----------------------------------------------------------------


def explained(run, *documents, folder, name="j"):
    return run("explain", "job", name, "-n", "ml", "-f", write(folder, *documents), "--now", NOW)


def test_only_the_first_few_before_it_are_named(run, tmp_path):
    line = jobs("j", 9, {"cpu": 9}, queue="a")
    ended = explained(run, cluster("m", {"cpu": 4}), queue("a"), *line, folder=tmp_path, name="j-08")
    assert "And 2 more." in ended.out
    assert "number 8 of 9" in ended.out


def test_an_unknown_priority_class_is_said_to_be_unknown(run, tmp_path):
    documents = queue("a"), job("j", CPU, queue="a", priority="gone"), priority_class("usual", 7, globalDefault=True)
    ended = explained(run, *documents, folder=tmp_path)
    assert "Priority 7, the default, for PriorityClass 'gone' does not exist" in ended.out


def test_what_was_adopted_is_said_to_be(run, state):
    ended = run("explain", "job", "eval", "-n", "ml", "-f", state)
    assert "It carries no record of an admission, so it is left alone." in ended.out


def test_copies_are_said_to_be_charged_each(run, tmp_path):
    documents = cluster("m", CPU), cluster("n", CPU), queue("a"), job("j", {"cpu": 5}, queue="a")
    ended = explained(run, *documents, binding("j", paused=True, placement={}), folder=tmp_path)
    assert "Its placement sends the whole of it to 2 clusters; each copy is charged." in ended.out


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        pytest.param(cluster("m", {"cpu": 1}), "m: lacks 1 cpu (1 free).", id="lacks"),
        pytest.param(cluster("m", {"cpu": 2}, ready=False), "m: a candidate, but it is not ready.", id="not-ready"),
        pytest.param(
            cluster("m", {"cpu": 2}, kinds=()),
            "m: no candidate, it does not serve batch.volcano.sh/v1alpha1 Job (ApiNotEnabled).",
            id="not-served",
        ),
        pytest.param(
            cluster("m", {"cpu": 2}, taints=[{"key": "a", "effect": "NoSchedule"}]),
            "m: no candidate, the placement does not tolerate its taint a:NoSchedule (UntoleratedTaint).",
            id="taint",
        ),
        pytest.param(cluster("m", None), "m: a candidate, but it has no resource summary.", id="no-summary"),
        pytest.param(cluster("m", {"cpu": 2}), "m: has room for it.", id="room"),
    ],
)
def test_every_cluster_is_told_with_its_room_or_why_not(run, tmp_path, member, expected):
    documents = queue("a", state="Closed"), job("j", {"cpu": 2}, queue="a"), member
    assert expected in explained(run, *documents, folder=tmp_path).out


# -- terminals and pipes --------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_only_a_terminal_gets_colours(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "70")
    assert output_style(Terminal()) == OutputStyle(70, coloured=True)
    assert output_style(io.StringIO()) == OutputStyle(None, coloured=False)


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_may_refuse_colours(monkeypatch, name, value):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)
    assert not output_style(Terminal()).coloured


def test_forced_colours_do_not_reach_a_pipe(run, state, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in run("plan", "-f", state).out


def test_a_table_fits_the_terminal_and_is_one_row_a_line_elsewhere():
    columns, rows = [Column("NAME"), Column("N", right=True)], [("x" * 50, "1"), ("", "22")]
    narrow = table(columns, rows, OutputStyle(30)).splitlines()
    assert max(len(line) for line in narrow) <= 30
    assert table(columns, rows).splitlines() == [f"{'NAME':50}   N", f"{'x' * 50}   1", f"{'-':50}  22"]


def test_a_coloured_cell_is_coloured():
    assert "\x1b[" in table([Column("A")], [(Cell("x", "red"),)], OutputStyle(80, coloured=True))
    assert "\x1b[" not in table([Column("A")], [(Cell("x", "red"),)], OutputStyle(80))


def test_markup_and_escapes_in_names_stay_what_they_are():
    assert table([Column("A")], [("[red]x[/red] :smile:",)]).splitlines()[1] == "[red]x[/red] :smile:"
    assert escape("a\x1b[31mb\nc") == "a\\x1b[31mb\\nc"
    assert paragraph("a\x1b[0m") == "a\\x1b[0m"


def test_who_reads_only_the_beginning_sees_no_traceback(tmp_path):
    path = write(tmp_path, queue("a"), *jobs("j", 3000, CPU, queue="a"))
    command = [sys.executable, "-m", "controller.cli", "plan", "-f", path, "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)) as process:
        assert process.stdout.readline() == b"{\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=LIMIT_SECONDS) == 0


@pytest.mark.parametrize("command", [[], ["plan"], ["queues"], ["pending"], ["clusters"], ["explain", "job"]])
def test_help_teaches_with_examples(run, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ended = run(*command, "--help")
    examples = [line for line in ended.out.splitlines() if line.strip().startswith("volcano-global")]
    assert examples
    assert max(len(line) for line in examples) <= 80
    assert "\u2500" not in ended.out


def test_json_and_yaml_say_the_same(run, state):
    yaml = pytest.importorskip("yaml")
    told = run("queues", "-f", state, "-o", "yaml").out
    assert yaml.safe_load(told) == json.loads(run("queues", "-f", state, "-o", "json").out)
