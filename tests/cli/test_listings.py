"""Selection, order and formats of lists, current usage, and commands of other kinds."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.manifests import NOW, cluster, job, queue, running, write

ARGUMENTS = ("--now", NOW)


@pytest.fixture
def state(tmp_path):
    """Return the path of a file with a running job, one that the next cycle admits, and one that waits."""
    waiting = job("big", {"cpu": 9}, queue="a")
    waiting["metadata"]["labels"] = {"app": "train"}
    return write(
        tmp_path,
        cluster("m", {"cpu": 4}),
        queue("a"),
        queue("b", capability={"cpu": 4}),
        *running("old", {"cpu": 1}, on="m", queue="b"),
        job("next", {"cpu": 2}, queue="a"),
        waiting,
    )


def test_queues_show_current_usage(run, state):
    answer = run("queues", "-f", state, "-o", "json", *ARGUMENTS).answer
    found = {each["name"]: (each["allocated"]["cpu"], each["pending"], each["admitted"]) for each in answer["queues"]}
    assert found == {"a": ("0", 2, 0), "b": ("1", 0, 1), "root": ("1", 2, 1)}
    assert {each["nextCycle"] for each in answer["queues"]} == {None}


def test_next_cycle_is_added_on_request(run, state):
    answer = run("queues", "a", "--next-cycle", "-f", state, "-o", "json", *ARGUMENTS).answer
    [report] = answer["queues"]
    assert (report["allocated"]["cpu"], report["nextCycle"]["allocated"]["cpu"]) == ("0", "2")
    assert (report["nextCycle"]["admitted"], report["nextCycle"]["pending"]) == (1, 1)


def test_clusters_show_current_usage(run, state):
    answer = run("clusters", "--next-cycle", "-f", state, "-o", "json", *ARGUMENTS).answer
    [report] = answer["clusters"]
    assert (report["usage"]["cpu"], report["free"]["cpu"], report["nextCycle"]["free"]["cpu"]) == ("1", "3", "1")


def test_queue_without_capability_has_no_limit(run, state):
    rows = list(csv.DictReader(io.StringIO(run("queues", "-f", state, "-o", "csv").out)))
    assert {row["QUEUE"]: row["CPU LIMIT"] for row in rows} == {"root": "4", "a": "none", "b": "4"}


def test_csv_has_one_value_in_each_column(run, state):
    rows = list(csv.DictReader(io.StringIO(run("queues", "-f", state, "-o", "csv").out)))
    root = next(row for row in rows if row["QUEUE"] == "root")
    assert [root[f"CPU {title}"] for title in ("USED", "FAIR SHARE", "LIMIT")] == ["1", "4", "4"]
    assert {len(row) for row in rows} == {len(rows[0])}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["queues", "b"], ["queue.scheduling.volcano.sh/b"], id="name"),
        pytest.param(["pending", "-l", "app=train"], ["job.batch.volcano.sh/ml/big"], id="labels"),
        pytest.param(["pending", "-l", "app!=train"], [], id="other-labels"),
        pytest.param(["pending", "-n", "ml"], ["job.batch.volcano.sh/ml/big"], id="namespace"),
        pytest.param(["pending", "-n", "lab"], [], id="other-namespace"),
        pytest.param(["pending", "-n", "lab", "-A"], ["job.batch.volcano.sh/ml/big"], id="all-namespaces"),
        pytest.param(["pending", "ml/big"], ["job.batch.volcano.sh/ml/big"], id="workload"),
        pytest.param(
            ["pending", "job.batch.volcano.sh/ml/big"], ["job.batch.volcano.sh/ml/big"], id="workload-with-kind"
        ),
        pytest.param(["queues", "queue/b"], ["queue.scheduling.volcano.sh/b"], id="queue-with-kind"),
        pytest.param(
            ["clusters", "cluster.cluster.karmada.io/m"], ["cluster.cluster.karmada.io/m"], id="cluster-with-kind"
        ),
        pytest.param(["top"], ["job.batch.volcano.sh/ml/old"], id="admitted"),
        pytest.param(
            ["queues", "--sort-by", ".allocated.cpu"],
            ["queue.scheduling.volcano.sh/b", "queue.scheduling.volcano.sh/root", "queue.scheduling.volcano.sh/a"],
            id="sorted",
        ),
    ],
)
def test_listing_is_selected_and_sorted(run, state, arguments, expected):
    ended = run(*arguments, "-f", state, "-o", "name", *ARGUMENTS)
    assert (ended.code, ended.out.split()) == (0, expected)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        pytest.param(["queues", "bb"], 1, "queue bb does not exist; there is b", id="queue"),
        pytest.param(["clusters", "n"], 1, "cluster n does not exist; there is m", id="cluster"),
        pytest.param(["queues", "--sort-by", "size"], 2, "--sort-by size: there is no such field", id="field"),
        pytest.param(["pending", "-l", "a b"], 2, "-l 'a b': 'a b' is not a requirement", id="selector"),
        pytest.param(["queues", "-o", "jsonn"], 2, "'jsonn' is unknown; write table, wide", id="unknown-format"),
        pytest.param(["explain", "job", "a/b/c/d"], 2, "'a/b/c/d' is not a name", id="name"),
        pytest.param(["plan", "-o", "csv"], 2, "-o csv is for lists of objects", id="format"),
        pytest.param(["explain", "job", "ml/old", "-n", "x"], 2, "is not in namespace 'x'", id="two-namespaces"),
    ],
)
def test_wrong_selection_is_reported(run, state, arguments, code, expected):
    ended = run(*arguments, "-f", state, *ARGUMENTS)
    assert ended.code == code
    assert expected in ended.err


TYPOS = [
    pytest.param({"spec": {"wieght": 2}}, "spec.wieght: unknown field; did you mean weight?", id="field"),
    pytest.param({"kind": "Qeue"}, "not of a kind that is read; did you mean kind Queue?", id="kind"),
    pytest.param(
        {"apiVersion": "scheduling/v1"},
        "not of a kind that is read; did you mean apiVersion scheduling.volcano.sh/v1beta1?",
        id="group",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), TYPOS)
def test_typo_is_noted_and_an_error_with_strict(run, tmp_path, changes, expected):
    path = write(tmp_path, queue("a"), {**queue("b"), **changes})
    noted, refused = run("queues", "-f", path), run("queues", "-f", path, "--strict")
    assert noted.code == 0
    assert expected in noted.err
    assert (refused.code, refused.out) == (2, "")
    assert expected in refused.err


@pytest.mark.parametrize("name", ["ml/big", "job.batch.volcano.sh/ml/big"])
def test_job_is_explained_by_namespace_and_name(run, state, name):
    assert run("explain", "job", name, "-f", state).code == 0


def test_labels_that_select_nothing_print_no_legend(run, state):
    assert run("queues", "-l", "app=none", "-f", state).out == "No queue is selected.\n"


def test_queue_is_explained(run, state):
    assert run("explain", "queue", "queue/a", "-f", state).code == 0
    answer = run("explain", "queue", "a", "-f", state, "-o", "json").answer
    assert answer["queue"]["name"] == "a"
    assert [each["name"] for each in answer["first"]] == ["big"]
    assert "no limit" in run("explain", "queue", "a", "-f", state).out


def test_history_of_another_file_is_bad_input(run, tmp_path):
    path = tmp_path / "decisions.jsonl"
    path.write_text("{}\n")
    ended = run("history", "ml/train", "-f", str(path))
    assert (ended.code, ended.out) == (2, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_names_the_program(run, shell):
    ended = run("completion", shell)
    assert ended.code == 0
    assert "volcano-global" in ended.out


_ASK = """
source <(volcano-global completion bash)
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_volcano_global_completion volcano-global
echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["pen"], "pending", id="command"),
        pytest.param(["explain", ""], "job hyperjob queue", id="subcommand"),
        pytest.param(["queues", "--so"], "--sort-by", id="option"),
        pytest.param(["queues", "-o", ""], "table wide name csv json yaml", id="value"),
    ],
)
def test_bash_completes_words(words, expected):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", "--norc", "-c", _ASK, "bash", "volcano-global", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert ended.stdout.strip() == expected, ended.stderr


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
@pytest.mark.parametrize(
    ("words", "expected"),
    [pytest.param("pen", "pending", id="command"), pytest.param("queues -o js", "json", id="value")],
)
def test_fish_completes_words(words, expected, tmp_path):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    ask = f'volcano-global completion fish | source; complete -C "volcano-global {words}"'
    ended = subprocess.run(["fish", "-c", ask], capture_output=True, text=True, check=True, env=environment)
    assert [line.split("\t")[0] for line in ended.stdout.splitlines()] == [expected]


_TYPE_TAB = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1=; fpath=($HOME $fpath); autoload -Uz compinit; compinit -u -d $HOME/dump; print loaded'
zpty -r shell line '*loaded*loaded*'
zpty -w -n shell $'volcano-global pen\t'
zpty -r -m shell line '*pending*' && print completed
zpty -d shell
"""


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes_at_the_first_tab(run, tmp_path):
    (tmp_path / "_volcano-global").write_text(run("completion", "zsh").out)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    ended = subprocess.run(
        ["zsh", "-f", "-c", _TYPE_TAB], capture_output=True, text=True, check=True, env=environment, timeout=60
    )
    assert ended.stdout == "completed\n"


def test_queues_show_devices_of_clusters_that_are_not_used(run, tmp_path):
    fleet = cluster("m", {"cpu": 4, "nvidia.com/gpu": 2, "ephemeral-storage": "9Gi"}, ready=False)
    queues = run("queues", "-f", write(tmp_path, fleet, queue("a"), job("j", {"cpu": 1}, queue="a")), *ARGUMENTS).out
    assert queues.splitlines()[0].split() == ["QUEUE", "STATE", "PENDING", "ADMITTED", "CPU", "MEMORY", "GiB", "GPU"]


def test_version_and_short_help(run):
    assert run("--version").out.startswith("volcano-global ")
    assert run("queues", "-h").out == run("queues", "--help").out


def test_every_report_carries_its_api_version(run, state):
    for command in (["plan"], ["queues"], ["pending"], ["clusters"], ["top"], ["explain", "job", "ml/old"]):
        answer = json.loads(run(*command, "-f", state, "-o", "json").out)
        assert answer["apiVersion"] == "cli.volcano-global.io/v1alpha1"
        assert answer["configuration"]["source"] == "Defaults"


def test_priority_raised_by_waiting_is_shown(run, tmp_path):
    low, high = job("low", {"cpu": 4}, queue="a"), job("high", {"cpu": 4}, queue="a")
    low["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    high["metadata"]["creationTimestamp"] = "2026-01-01T00:30:00Z"
    high["spec"]["priorityClassName"] = "high"
    path = write(
        tmp_path,
        cluster("m", {"cpu": 4}),
        queue("a"),
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 15},
        *running("old", {"cpu": 4}, on="m", queue="a"),
        {
            "apiVersion": "config.volcano-global.io/v1alpha1",
            "kind": "VolcanoGlobalConfiguration",
            "ageing": {"after": "10m", "step": 10, "max": 100},
        },
        low,
        high,
    )
    arguments = ("-f", path, "--now", "2026-01-01T00:40:00Z")
    listed = run("pending", *arguments, "-o", "json").answer["pending"]
    assert [(each["name"], each["priority"], each["raisedPriority"]) for each in listed] == [
        ("low", 0, 40),
        ("high", 15, 25),
    ]
    rows = list(csv.DictReader(io.StringIO(run("pending", *arguments, "-o", "csv").out)))
    assert [row["PRIORITY"] for row in rows] == ["40 (0)", "25 (15)"]
    explained = run("explain", "job", "high", "-n", "ml", *arguments).out
    assert "Priority 15 of PriorityClass 'high', raised to 25 by waiting" in explained
    assert "Job ml/low with priority 0, raised to 40 by waiting" in explained
