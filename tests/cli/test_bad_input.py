"""Bad input: exit code 2, no output, and an error that names file, document and field."""

import io
from pathlib import Path

import pytest
import yaml

from tests.cli.manifests import configuration, job, queue, write

BOMB = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))])
LIST = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [queue("a"), queue("b", weight="x")]})


def cases(file: str) -> list[tuple[str, str, str]]:
    """Return name, input and expected error of each case in *file*."""
    documents = yaml.safe_load_all((Path(__file__).parent / file).read_text())
    return [(case["name"], case["text"], case["error"]) for case in documents]


FIELDS = cases("invalid_fields.yaml")
TEXTS = [
    *cases("invalid_yaml.yaml"),
    ("yaml-deep", "[" * 100_000, ": line 1: more than 100 levels of nesting"),
    ("not-utf-8", b"a: \xff", ": line 1: it is not UTF-8 text"),
    ("utf-16", "a: 1".encode("utf-16"), ": line 1: it is not UTF-8 text"),
    ("control", "a: \x07", ": document 1: unacceptable character #x0007"),
    ("alias", "a: *b", ": document 1: line 1: alias *b has no complete anchor before it"),
    ("alias-expansion", BOMB, ": document 1: line 8: more than 2000000 values after alias expansion"),
    ("number-too-long", f"a: {'9' * 5000}", "does not fit in 64 bits; write larger numbers in quotes"),
    ("json-lone-surrogate", '{"apiVersion": "v1",\n"kind": "\\ud800"}', ": document 1: line 2, column"),
    ("comment-only", "# only a comment", ": no Kubernetes object found"),
    ("empty", "", ": no Kubernetes object found"),
    ("item", LIST, ': document 1, item 2 (Queue b): spec.weight: "x" is not a whole number'),
]


@pytest.mark.parametrize(("text", "expected"), [pytest.param(text, error, id=name) for name, text, error in FIELDS])
def test_invalid_field_error_names_file_and_document(run, tmp_path, text, expected):
    path = tmp_path / "jobs.yaml"
    path.write_text(f"{yaml.safe_dump(queue('first'))}---\n{text}")
    ended = run("plan", "-f", str(path), "-o", "json")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"{path}: document 2 (")
    assert expected in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(("text", "expected"), [pytest.param(text, error, id=name) for name, text, error in TEXTS])
def test_parse_error_names_the_line(run, tmp_path, text, expected):
    path = tmp_path / "jobs.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    ended = run("plan", "-f", str(path))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(str(path))
    assert expected in ended.err
    assert len(ended.err.splitlines()) == 1


def test_all_errors_are_reported_at_once(run, tmp_path):
    first = write(tmp_path, queue("a", weight="x", priority=-1), name="a.yaml")
    second = write(tmp_path, job("j", {"cpu": "x"}), name="b.yaml")
    ended = run("plan", "-f", first, "-f", second)
    assert (ended.code, len(ended.err.splitlines())) == (2, 3)


def test_number_of_reported_errors_is_limited(run, tmp_path):
    ended = run("plan", "-f", write(tmp_path, *(queue(f"q{number}", weight="x") for number in range(60))))
    assert (ended.code, ended.err.splitlines()[-1]) == (2, "and 10 more errors")


def test_identical_duplicate_object_is_allowed(run, tmp_path):
    path = write(tmp_path, queue("a"))
    assert run("plan", "-f", path, "-f", path).code == 0


def test_different_objects_of_one_name_are_rejected(run, tmp_path):
    path = write(tmp_path, queue("a"), queue("a", weight=2))
    ended = run("plan", "-f", path)
    assert (
        ended.err
        == f"{path}: document 2 (Queue a): a different object of this name is in {path}: document 1; keep one\n"
    )


def test_duplicate_uid_is_rejected(run, tmp_path):
    path = write(tmp_path, job("a", {"cpu": 1}, uid="u"), job("b", {"cpu": 1}, uid="u"))
    ended = run("plan", "-f", path)
    assert (
        ended.err == f"{path}: document 2 (Job ml/b): metadata.uid: Job ml/a in {path}: document 1 has the same uid\n"
    )


def test_second_configuration_is_rejected(run, tmp_path):
    path = write(tmp_path, configuration(), configuration(queueOrder="FairShareFirst"))
    ended = run("plan", "-f", path)
    assert (
        ended.err == f"{path}: document 2 (VolcanoGlobalConfiguration): the first is in {path}: document 1; keep one\n"
    )


def test_missing_file_is_reported(run, tmp_path):
    ended = run("plan", "-f", str(tmp_path / "nope.yaml"))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"{tmp_path}/nope.yaml: no such file or directory\n"


def test_folder_without_manifests_is_reported(run, tmp_path):
    ended = run("plan", "-f", str(tmp_path))
    assert (ended.code, ended.err) == (2, f"{tmp_path}: no file there ends in .json, .yaml, .yml\n")


def test_error_in_standard_input_names_it(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a: b: c")))
    ended = run("plan", "-f", "-")
    assert ended.err == "standard input: document 1: line 1, column 5: mapping values are not allowed in this context\n"


@pytest.mark.parametrize("command", [["queues"], ["pending"], ["clusters"], ["explain", "job", "j"]])
def test_every_command_validates_fields(run, tmp_path, command):
    ended = run(*command, "-f", write(tmp_path, queue("a", weight="x")))
    assert (ended.code, ended.out) == (2, "")
    assert 'spec.weight: "x" is not a whole number' in ended.err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(["--now", "soon"], "'soon' is not a time; write it like 2006-01-02T15:04:05Z", id="now"),
        pytest.param(["-o", "xml"], "'xml'", id="output"),
        pytest.param(["--kubeconfig", "k"], "-f reads files; remove the options", id="both"),
        pytest.param(["--colour"], "No such option", id="unknown"),
    ],
)
def test_invalid_option_exits_with_bad_input(run, tmp_path, options, expected):
    ended = run("plan", "-f", write(tmp_path, queue("a")), *options)
    assert (ended.code, ended.out) == (2, "")
    assert expected in ended.err


def test_invalid_configuration_file_exits_with_bad_input(run, tmp_path):
    path = tmp_path / "configuration.yaml"
    path.write_text("kind: Other\n")
    ended = run("plan", "--kubeconfig", "/nowhere", "--configuration", str(path))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"{path}: ")
