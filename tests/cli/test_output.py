"""Tables, colors, help and formats of the output."""

import io
import json

import pytest
import yaml

from controller.cli.render.amounts import describe_requests, format_short, in_unit
from controller.cli.render.output import Cell, Column, Listing, OutputStyle, escape, output_style, paragraph, table
from tests.cli.manifests import cluster, job, queue, running, write


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "70")
    return Terminal()


def test_colors_are_used_on_a_terminal_only(terminal, run, tmp_path, monkeypatch):
    assert output_style(terminal) == OutputStyle(70, colored=True)
    assert output_style(io.StringIO()) == OutputStyle(None, colored=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in run("plan", "-f", write(tmp_path, queue("a"))).out


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_environment_turns_colors_off(terminal, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert not output_style(terminal).colored


def test_table_never_splits_a_value():
    columns, rows = [Column("NAME"), Column("N", right=True)], [("x" * 50, "1"), ("", "22")]
    assert "x" * 50 in table(columns, rows, OutputStyle(30))
    assert table(columns, rows).splitlines() == [f"{'NAME':50}   N", f"{'x' * 50}   1", f"{'-':50}  22"]


@pytest.mark.parametrize("colored", [False, True])
def test_cell_style_is_applied_with_colors(colored):
    assert ("\x1b[" in table([Column("A")], [(Cell("x", "red"),)], OutputStyle(80, colored=colored))) is colored


def test_markup_and_escapes_in_names_are_printed_literally():
    assert table([Column("A")], [("[red]x[/red] :smile:",)]).splitlines()[1] == "[red]x[/red] :smile:"
    assert escape("a\x1b[31mb\nc") == "a\\x1b[31mb\\nc"
    assert paragraph("a\x1b[0m") == "a\\x1b[0m"


@pytest.mark.parametrize("output", ["json", "yaml"])
@pytest.mark.parametrize("character", ["\x9b2J", "\u202e", "\u061c", "\U000e0041"])
def test_unprintable_characters_of_names_are_escaped(run, tmp_path, output, character):
    name = f"ü{character}q"
    printed = run("pending", "-f", write(tmp_path, job("j", {"cpu": 1}, queue=name)), "-o", output).out
    assert printed.replace("\n", "").isprintable()
    assert (json.loads if output == "json" else yaml.safe_load)(printed)["pending"][0]["queue"] == name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("=1+2", "'=1+2", id="formula"),
        pytest.param("@SUM(A1)", "'@SUM(A1)", id="function"),
        pytest.param("\uff1d1+2", "'\uff1d1+2", id="full-width"),
        pytest.param("-2+3+cmd", "'-2+3+cmd", id="formula-with-a-sign"),
        pytest.param("-1.5Gi", "-1.5Gi", id="amount"),
        pytest.param("-", "-", id="none"),
        pytest.param("a=1", "a=1", id="text"),
    ],
)
def test_csv_contains_no_formula(value, text):
    assert Listing([Column("A")], [(value,)]).csv() == f"A\n{text}"


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        pytest.param("cpu", 1, "0", id="less-than-a-hundredth"),
        pytest.param("cpu", -1, "0", id="below-zero-by-less-than-a-hundredth"),
        pytest.param("cpu", 3333, "3.33", id="rounded-down"),
        pytest.param("cpu", -1500, "-1.5", id="below-zero"),
        pytest.param("nvidia.com/gpu", 12000, "12", id="gpu"),
        pytest.param("storage.vendor.io/ssd", 2000, "2", id="device-named-like-bytes"),
        pytest.param("memory", 1023, "1023", id="bytes"),
        pytest.param("memory", 3579139413, "3.33Gi", id="memory"),
        pytest.param("memory", 2**80, "1048576Ei", id="beyond-all-units"),
    ],
)
def test_amounts_are_formatted_short(resource, amount, text):
    assert format_short(resource, amount) == text


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", "-4m", "0"),
        ("cpu", "-1500m", "-1.5"),
        ("memory", "-1Mi", "0"),
        ("storage.vendor.io/ssd", "2", "2"),
        ("hugepages-2Mi", "2Gi", "2"),
    ],
)
def test_amounts_are_formatted_in_the_unit_of_their_column(resource, amount, text):
    assert in_unit(resource, {resource: amount}) == text


def test_requests_are_described():
    assert describe_requests({"pods": 2000, "cpu": 1500, "memory": 2**30}) == "1.5 cpu, 1Gi memory in 2 pods"
    assert describe_requests({"pods": 1000}) == "nothing in 1 pod"
    assert describe_requests({"pods": 1000, "cpu": 5, "memory": 1}) == "5m cpu, 1 memory in 1 pod"


@pytest.mark.parametrize("command", ["plan", "queues", "pending", "clusters"])
def test_commands_accept_empty_input(run, tmp_path, command):
    path = tmp_path / "empty.yaml"
    path.write_text("apiVersion: v1\nkind: List\nitems: []\n---\napiVersion: v1\nkind: ConfigMap\n")
    ended = run(command, "-f", str(path))
    assert (ended.code, ended.err) == (0, f"note: {path}: no object in it is read\n")


@pytest.mark.parametrize("command", [["plan"], ["queues"], ["pending"], ["clusters"], ["top"], ["explain", "job", "j"]])
def test_json_and_yaml_are_equal_and_name_the_version(run, tmp_path, command):
    documents = cluster("m", {"cpu": 4}), queue("a"), job("j", {"cpu": 9}, namespace="default", queue="a")
    path = write(tmp_path, *documents, *running("old", {"cpu": 1}, on="m", queue="a"))
    answer = run(*command, "-f", path, "-o", "json", "--now", "2026-01-01").answer
    assert yaml.safe_load(run(*command, "-f", path, "-o", "yaml", "--now", "2026-01-01").out) == answer
    assert answer["apiVersion"] == "cli.volcano-global.io/v1alpha1"
    assert answer["configuration"]["source"] == "Defaults"


@pytest.mark.parametrize("command", [[], ["plan"], ["queues"], ["pending"], ["clusters"], ["explain", "job"]])
def test_help_has_examples(run, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ended = run(*command, "--help")
    examples = [line for line in ended.out.splitlines() if line.strip().startswith("volcano-global")]
    assert examples
    assert max(map(len, examples)) <= 80
    # The frames of rich help texts.
    assert "\u2500" not in ended.out


def test_version_is_printed_and_h_is_short_for_help(run):
    assert run("--version").out.startswith("volcano-global ")
    assert run("queues", "-h").out == run("queues", "--help").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_names_the_program(run, shell):
    assert "volcano-global" in run("completion", shell).out
