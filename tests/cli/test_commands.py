"""Commands with missing objects, their explanations, and output to terminals and pipes."""

import io
import json
import os
import subprocess
import sys

import pytest

from controller.cli.render.output import Cell, Column, OutputStyle, escape, output_style, paragraph, table
from tests.cli.manifests import NOW, binding, cluster, job, jobs, priority_class, queue, running, write
from tests.waiting import LIMIT_SECONDS

CPU = {"cpu": 1}


@pytest.fixture
def state(tmp_path):
    """Return the path of a file with one running and two pending jobs."""
    return write(
        tmp_path,
        cluster("m", {"cpu": 4}, used={"cpu": 2}),
        queue("research", capability={"cpu": 4}),
        *running("eval", {"cpu": 2}, on="m", queue="research"),
        job("train", {"cpu": 3}, queue="research"),
        job("tune", {"cpu": 3}, queue="research"),
    )


# -- missing objects ----------------------------------------------------------


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
def test_missing_job_error_suggests_names(run, state, arguments, expected):
    ended = run("explain", "job", *arguments, "-f", state)
    assert (ended.code, ended.out, ended.err) == (1, "", f"{expected}\n")


def test_unmanaged_job_is_reported(run, tmp_path):
    path = write(tmp_path, queue("default"), job("j", CPU), binding("j", suspended=False))
    ended = run("explain", "job", "j", "-n", "ml", "-f", path)
    assert (ended.code, ended.out) == (1, "")
    assert (
        ended.err == "Job ml/j is not managed: its binding is not suspended, so Karmada places it without admission\n"
    )


def test_missing_queue_error_suggests_names(run, state):
    ended = run("pending", "--queue", "reserch", "-f", state)
    assert (ended.code, ended.out, ended.err) == (1, "", "queue reserch does not exist; there is research\n")


def test_missing_queue_with_pending_jobs_is_accepted(run, tmp_path):
    path = write(tmp_path, job("j", CPU, queue="gone"))
    ended = run("pending", "--queue", "gone", "-f", path, "-o", "json")
    assert [each["reason"] for each in ended.answer["pending"]] == ["QueueNotFound"]


def test_missing_kubeconfig_is_reported(run, tmp_path):
    ended = run("plan", "--kubeconfig", str(tmp_path / "none"))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.endswith("no such file; to plan without a control plane, name files with -f\n")


@pytest.mark.parametrize("command", ["plan", "queues", "pending", "clusters"])
def test_commands_accept_empty_input(run, tmp_path, command):
    path = tmp_path / "empty.yaml"
    path.write_text("apiVersion: v1\nkind: List\nitems: []\n---\napiVersion: v1\nkind: ConfigMap\n")
    ended = run(command, "-f", str(path))
    assert (ended.code, ended.err) == (0, f"note: {path}: no object in it is read\n")
    assert "Traceback" not in ended.out


# -- explaining ----------------------------------------------------------------


def explained(run, *documents, folder, name="j"):
    return run("explain", "job", name, "-n", "ml", "-f", write(folder, *documents), "--now", NOW)


def test_number_of_listed_workloads_ahead_is_limited(run, tmp_path):
    line = jobs("j", 9, {"cpu": 9}, queue="a")
    ended = explained(run, cluster("m", {"cpu": 4}), queue("a"), *line, folder=tmp_path, name="j-08")
    assert "And 2 more." in ended.out
    assert "at position 8 of 9" in ended.out


def test_unknown_priority_class_is_explained(run, tmp_path):
    documents = queue("a"), job("j", CPU, queue="a", priority="gone"), priority_class("usual", 7, globalDefault=True)
    ended = explained(run, *documents, folder=tmp_path)
    assert "Priority 7, the default, because PriorityClass 'gone' does not exist" in ended.out


def test_adopted_job_is_explained(run, state):
    ended = run("explain", "job", "eval", "-n", "ml", "-f", state)
    assert "It has no admission record, because it ran before installation; it is never evicted." in ended.out


def test_duplicated_job_charges_each_cluster(run, tmp_path):
    documents = cluster("m", CPU), cluster("n", CPU), queue("a"), job("j", {"cpu": 5}, queue="a")
    ended = explained(run, *documents, binding("j", suspended=True, placement={}), folder=tmp_path)
    assert "Its placement duplicates it to 2 clusters; each copy is charged." in ended.out


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        pytest.param(cluster("m", {"cpu": 1}), "m: lacks 1 cpu (1 free).", id="lacks"),
        pytest.param(cluster("m", {"cpu": 2}, ready=False), "m: a candidate, but it is not ready.", id="not-ready"),
        pytest.param(
            cluster("m", {"cpu": 2}, kinds=()),
            "m: not a candidate: it does not serve batch.volcano.sh/v1alpha1 Job (ApiNotEnabled).",
            id="not-served",
        ),
        pytest.param(
            cluster("m", {"cpu": 2}, taints=[{"key": "a", "effect": "NoSchedule"}]),
            "m: not a candidate: the placement does not tolerate its taint a:NoSchedule (UntoleratedTaint).",
            id="taint",
        ),
        pytest.param(cluster("m", None), "m: a candidate, but it has no resource summary.", id="no-summary"),
        pytest.param(cluster("m", {"cpu": 2}), "m: has free capacity for it.", id="room"),
    ],
)
def test_clusters_are_explained_with_capacity_or_exclusion(run, tmp_path, member, expected):
    documents = queue("a", state="Closed"), job("j", {"cpu": 2}, queue="a"), member
    assert expected in explained(run, *documents, folder=tmp_path).out


# -- terminals and pipes --------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_colors_are_used_on_a_terminal_only(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "70")
    assert output_style(Terminal()) == OutputStyle(70, colored=True)
    assert output_style(io.StringIO()) == OutputStyle(None, colored=False)


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_environment_turns_colors_off(monkeypatch, name, value):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)
    assert not output_style(Terminal()).colored


def test_force_color_does_not_color_a_pipe(run, state, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in run("plan", "-f", state).out


def test_table_never_splits_a_value():
    columns, rows = [Column("NAME"), Column("N", right=True)], [("x" * 50, "1"), ("", "22")]
    assert "x" * 50 in table(columns, rows, OutputStyle(30))
    assert table(columns, rows).splitlines() == [f"{'NAME':50}   N", f"{'x' * 50}   1", f"{'-':50}  22"]


def test_cell_style_is_applied_with_colors():
    assert "\x1b[" in table([Column("A")], [(Cell("x", "red"),)], OutputStyle(80, colored=True))
    assert "\x1b[" not in table([Column("A")], [(Cell("x", "red"),)], OutputStyle(80))


def test_markup_and_escapes_in_names_are_printed_literally():
    assert table([Column("A")], [("[red]x[/red] :smile:",)]).splitlines()[1] == "[red]x[/red] :smile:"
    assert escape("a\x1b[31mb\nc") == "a\\x1b[31mb\\nc"
    assert paragraph("a\x1b[0m") == "a\\x1b[0m"


def test_closed_pipe_prints_no_traceback(tmp_path):
    path = write(tmp_path, queue("a"), *jobs("j", 3000, CPU, queue="a"))
    command = [sys.executable, "-m", "controller.cli", "plan", "-f", path, "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)) as process:
        assert process.stdout.readline() == b"{\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=LIMIT_SECONDS) == 0


@pytest.mark.parametrize("command", [[], ["plan"], ["queues"], ["pending"], ["clusters"], ["explain", "job"]])
def test_help_has_examples(run, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ended = run(*command, "--help")
    examples = [line for line in ended.out.splitlines() if line.strip().startswith("volcano-global")]
    assert examples
    assert max(len(line) for line in examples) <= 80
    assert "\u2500" not in ended.out


def imported_by(*words):
    """Return the modules that a command imports."""
    report = "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    program = f"import sys; from controller.cli.__main__ import main\n{report}"
    ended = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert ended.stdout
    return {*ended.stderr.split()}


@pytest.mark.parametrize("words", [["pending"], ["explain", "job"], ["simulate"]], ids=" ".join)
def test_help_imports_no_slow_library(words):
    slow = {"aiohttp", "asyncio", "msgspec", "pydantic", "rich", "yaml"}
    assert not slow & imported_by(*words, "--help")


def test_commands_on_files_import_no_client(state):
    assert not {"aiohttp", "kubernetes_asyncio", "structlog"} & imported_by("pending", "-f", state)


def test_json_and_yaml_output_are_equal(run, state):
    yaml = pytest.importorskip("yaml")
    as_yaml = run("queues", "-f", state, "-o", "yaml").out
    assert yaml.safe_load(as_yaml) == json.loads(run("queues", "-f", state, "-o", "json").out)
