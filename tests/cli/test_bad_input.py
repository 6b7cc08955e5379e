"""Bad input: exit code 2, nothing on stdout, and a sentence that names file, document and field."""

import io
from pathlib import Path

import pytest
import yaml

from tests.cli.manifests import configuration, job, queue, write

BOMB = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))])
LIST = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [queue("a"), queue("b", weight="x")]})


def cases(file: str) -> list[tuple[str, str, str]]:
    """Return name, text and what is to be said, of each case in *file*."""
    documents = yaml.safe_load_all((Path(__file__).parent / file).read_text())
    return [(each["name"], each["text"], each["says"]) for each in documents]


FIELDS = cases("invalid_fields.yaml")
TEXTS = [
    *cases("invalid_yaml.yaml"),
    ("yaml-deep", "[" * 100_000, ": line 1: it is nested more than 100 levels deep"),
    ("not-utf-8", b"a: \xff", ": line 1: it is not UTF-8 text"),
    ("utf-16", "a: 1".encode("utf-16"), ": line 1: it is not UTF-8 text"),
    ("control", "a: \x07", ": document 1: unacceptable character #x0007"),
    ("alias", "a: *b", ": document 1: line 1: alias *b stands for nothing that is complete before it"),
    ("aliases-without-end", BOMB, ": document 1: line 8: its aliases make more than 2000000 values of it"),
    ("number-too-long", f"a: {'9' * 5000}", "is no number of 64 bits; write larger ones in quotes"),
    ("json-half-a-letter", '{"apiVersion": "v1",\n"kind": "\\ud800"}', ": document 1: line 2, column"),
    ("nothing", "# only a comment", ": no Kubernetes object is there"),
    ("nothing-at-all", "", ": no Kubernetes object is there"),
    ("item", LIST, ': document 1, item 2 (Queue b): spec.weight: "x" is not a whole number'),
]


@pytest.mark.parametrize(("text", "expected"), [pytest.param(text, said, id=name) for name, text, said in FIELDS])
def test_a_bad_field_is_named_with_file_and_document(run, tmp_path, text, expected):
    path = tmp_path / "jobs.yaml"
    path.write_text(f"{yaml.safe_dump(queue('first'))}---\n{text}")
    ended = run("plan", "-f", str(path), "-o", "json")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"{path}: document 2 (")
    assert expected in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(("text", "expected"), [pytest.param(text, said, id=name) for name, text, said in TEXTS])
def test_a_bad_text_is_named_with_its_line(run, tmp_path, text, expected):
    path = tmp_path / "jobs.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    ended = run("plan", "-f", str(path))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(str(path))
    assert expected in ended.err
    assert len(ended.err.splitlines()) == 1


def test_everything_that_is_wrong_is_said_at_once(run, tmp_path):
    first = write(tmp_path, queue("a", weight="x", priority=-1), name="a.yaml")
    second = write(tmp_path, job("j", {"cpu": "x"}), name="b.yaml")
    ended = run("plan", "-f", first, "-f", second)
    assert (ended.code, len(ended.err.splitlines())) == (2, 3)


def test_of_very_many_problems_some_are_said(run, tmp_path):
    ended = run("plan", "-f", write(tmp_path, *(queue(f"q{number}", weight="x") for number in range(60))))
    assert (ended.code, ended.err.splitlines()[-1]) == (2, "and 10 more problems")


def test_an_object_may_be_there_twice_if_it_is_the_same(run, tmp_path):
    path = write(tmp_path, queue("a"))
    assert run("plan", "-f", path, "-f", path).code == 0


def test_two_objects_of_one_name_are_refused(run, tmp_path):
    path = write(tmp_path, queue("a"), queue("a", weight=2))
    ended = run("plan", "-f", path)
    assert ended.err == f"{path}: document 2 (Queue a): it is another one in {path}: document 1; keep one\n"


def test_two_objects_of_one_uid_are_refused(run, tmp_path):
    path = write(tmp_path, job("a", {"cpu": 1}, uid="u"), job("b", {"cpu": 1}, uid="u"))
    ended = run("plan", "-f", path)
    assert ended.err == f"{path}: document 2 (Job ml/b): metadata.uid: Job ml/a in {path}: document 1 has the same\n"


def test_two_configurations_are_refused(run, tmp_path):
    path = write(tmp_path, configuration(), configuration(queueOrder="FairShareFirst"))
    ended = run("plan", "-f", path)
    assert (
        ended.err == f"{path}: document 2 (VolcanoGlobalConfiguration): the first is in {path}: document 1; keep one\n"
    )


def test_a_file_that_is_not_there_is_named(run, tmp_path):
    ended = run("plan", "-f", str(tmp_path / "nope.yaml"))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"{tmp_path}/nope.yaml: no such file or directory\n"


def test_a_folder_without_manifests_is_named(run, tmp_path):
    ended = run("plan", "-f", str(tmp_path))
    assert (ended.code, ended.err) == (2, f"{tmp_path}: no file there ends in .json, .yaml, .yml\n")


def test_standard_input_is_named_so(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a: b: c")))
    ended = run("plan", "-f", "-")
    assert ended.err == "standard input: document 1: line 1, column 5: mapping values are not allowed in this context\n"


@pytest.mark.parametrize("command", [["queues"], ["pending"], ["clusters"], ["explain", "job", "j"]])
def test_every_command_reads_as_strictly(run, tmp_path, command):
    ended = run(*command, "-f", write(tmp_path, queue("a", weight="x")))
    assert (ended.code, ended.out) == (2, "")
    assert 'spec.weight: "x" is not a whole number' in ended.err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(["--now", "soon"], "'soon' is no time; write it like 2006-01-02T15:04:05Z", id="now"),
        pytest.param(["-o", "xml"], "'xml'", id="output"),
        pytest.param(["--kubeconfig", "k"], "-f reads files instead of the live control plane", id="both"),
        pytest.param(["--colour"], "No such option", id="unknown"),
    ],
)
def test_a_bad_option_is_bad_input(run, tmp_path, options, expected):
    ended = run("plan", "-f", write(tmp_path, queue("a")), *options)
    assert (ended.code, ended.out) == (2, "")
    assert expected in ended.err


def test_an_unreadable_configuration_of_the_control_plane_is_bad_input(run, tmp_path):
    path = tmp_path / "configuration.yaml"
    path.write_text("kind: Other\n")
    ended = run("plan", "--kubeconfig", "/nowhere", "--admission-configuration", str(path))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"{path}: ")
