"""The JSON of every command validates against the published schema."""

import json

import msgspec
import pytest

from controller.cli.__main__ import app
from docs.generate_schema import PATH, REPORTS, schema
from tests.cli.manifests import NOW
from tests.files import EXAMPLES
from tests.reporting.decision_log.recording import RecordedRun, encode

DEFINITIONS = schema()["$defs"]


def assert_valid(answer, report):
    """Assert that an output has the members of its schema, and values of their types."""
    members = DEFINITIONS[report]
    assert set(members["required"]) <= set(answer) <= set(members["properties"])
    # The schema of nested members is generated from the same types.
    msgspec.convert(answer, REPORTS[report][0])


@pytest.mark.parametrize(
    ("report", "command"),
    [
        pytest.param("plan", ["plan", "--what-if", "queue/a.spec.weight=3"], id="plan-what-if"),
        pytest.param("queues", ["queues", "--next-cycle"], id="queues"),
        pytest.param("pending", ["pending"], id="pending"),
        pytest.param("clusters", ["clusters", "--next-cycle"], id="clusters"),
        pytest.param("top", ["top"], id="top"),
        pytest.param("data", ["data"], id="data"),
        pytest.param("explain-job", ["explain", "job", "ml/big"], id="explain-pending"),
        pytest.param("explain-job", ["explain", "job", "ml/old"], id="explain-running"),
        pytest.param("explain-queue", ["explain", "queue", "a"], id="explain-queue"),
        pytest.param("simulate", ["simulate", "--compare", "per-pod"], id="simulate"),
        pytest.param("simulate", ["simulate", "--compare", "backfill"], id="simulate-backfill"),
    ],
)
def test_output_validates(run, state, report, command):
    answer = run(*command, "-f", state, "-o", "json", "--now", NOW).answer
    assert_valid(answer, report)


@pytest.mark.parametrize(
    ("report", "command"),
    [("plan", ["plan"]), ("explain-hyperjob", ["explain", "hyperjob", "ml/llm-training"])],
)
def test_output_about_examples_validates(run, report, command):
    answer = run(*command, "-f", str(EXAMPLES), "-o", "json", "--now", NOW).answer
    assert_valid(answer, report)


def test_output_about_decision_logs_validates(run, tmp_path):
    random_run = RecordedRun(0, exchanges=True)
    for _ in range(10):
        random_run.apply_event()
        random_run.plan()
        random_run.now += 10
    lines = list(encode(random_run.files[0]))
    decided = next(record for record in map(json.loads, lines) if record["type"] == "decision")
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(b"".join(lines))
    name = f"{decided['namespace']}/{decided['name']}"
    for report, command in (("replay", ["replay", str(path)]), ("history", ["history", name, "-f", str(path)])):
        answer = run(*command, "-o", "json").answer
        assert_valid(answer, report)
        assert report == "replay" or answer["decisions"]


@pytest.mark.parametrize("change", [{"queues": [{}]}, {"queues": "a"}, {"extra": 1}])
def test_altered_output_is_refused(run, state, change):
    answer = run("queues", "-f", state, "-o", "json").answer
    with pytest.raises((AssertionError, msgspec.ValidationError)):
        assert_valid({**answer, **change}, "queues")


def test_schema_file_is_current_and_has_every_command():
    assert json.loads(PATH.read_text()) == json.loads(json.dumps(schema())), "run `make reference`"
    commands = {command.name for command in app.registered_commands if command.name != "completion"}
    for group in app.registered_groups:
        commands |= {f"{group.name}-{command.name}" for command in group.typer_instance.registered_commands}
    assert commands <= set(REPORTS)


def test_schema_has_the_docstrings_of_fields():
    assert "Pending" in DEFINITIONS["explain-job"]["properties"]["state"]["description"]
    assert "fair share" in DEFINITIONS["QueueReport"]["properties"]["share"]["description"]
