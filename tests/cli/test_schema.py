"""The JSON of every command validates against the published schema."""

import json

import pytest

from controller.cli.__main__ import app
from docs.generate_schema import PATH, REPORTS, schema
from tests.cli.manifests import NOW, cluster, job, queue, running, write
from tests.files import EXAMPLES
from tests.reporting.decision_log.recording import RecordedLife, encode

TYPES = {
    "string": str,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}
KEYWORDS = {
    *("$ref", "anyOf", "const", "enum", "type", "items", "properties", "required", "additionalProperties"),
    *("title", "description", "default"),
}
DEFINITIONS = schema()["$defs"]


def problems(value, report):
    """Yield where *value* violates the schema of *report*."""
    yield from violations(value, DEFINITIONS[report], "$")


def violations(value, rule, path):
    """Yield where *value* violates *rule*, with the keywords that the schema uses; unknown members are violations."""
    assert not set(rule) - KEYWORDS, f"unexpected keywords {set(rule) - KEYWORDS}"
    if "$ref" in rule:
        yield from violations(value, DEFINITIONS[rule["$ref"].rpartition("/")[2]], path)
    if "anyOf" in rule and all(any(violations(value, each, path)) for each in rule["anyOf"]):
        yield f"{path}: {value!r} is none of the alternatives"
    if value not in rule.get("enum", [rule.get("const", value)]):
        yield f"{path}: {value!r} is not one of {rule}"
    if "type" in rule and not is_of_type(value, rule["type"]):
        yield f"{path}: {value!r} is not {rule['type']}"
    elif isinstance(value, dict) and rule.get("type") == "object":
        yield from member_violations(value, rule, path)
    elif isinstance(value, list) and "items" in rule:
        for number, item in enumerate(value):
            yield from violations(item, rule["items"], f"{path}[{number}]")


def is_of_type(value, name):
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def member_violations(value, rule, path):
    members = rule.get("properties", {})
    yield from (f"{path}: {name} is missing" for name in rule.get("required", ()) if name not in value)
    for name, member in value.items():
        other = members.get(name, rule.get("additionalProperties", not members))
        if isinstance(other, dict):
            yield from violations(member, other, f"{path}.{name}")
        elif not other:
            yield f"{path}: {name} is not in the schema"


@pytest.fixture
def state(tmp_path):
    return write(
        tmp_path,
        cluster("m", {"cpu": 4}),
        queue("a"),
        queue("b", capability={"cpu": 4}),
        *running("old", {"cpu": 1}, on="m", queue="b"),
        job("next", {"cpu": 2}, queue="a"),
        job("big", {"cpu": 9}, queue="a"),
    )


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
    assert list(problems(answer, report)) == []


@pytest.mark.parametrize(
    ("report", "command"),
    [("plan", ["plan"]), ("explain-hyperjob", ["explain", "hyperjob", "ml/llm-training"])],
)
def test_output_about_examples_validates(run, report, command):
    answer = run(*command, "-f", str(EXAMPLES), "-o", "json", "--now", NOW).answer
    assert list(problems(answer, report)) == []


def test_output_about_decision_logs_validates(run, tmp_path):
    life = RecordedLife(0, exchanges=True)
    for _ in range(10):
        life.happen()
        life.plan()
        life.now += 10
    lines = list(encode(life.files[0]))
    decided = next(record for record in map(json.loads, lines) if record["type"] == "decision")
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(b"".join(lines))
    name = f"{decided['namespace']}/{decided['name']}"
    for report, command in (("replay", ["replay", str(path)]), ("history", ["history", name, "-f", str(path)])):
        answer = run(*command, "-o", "json").answer
        assert list(problems(answer, report)) == []
        assert report == "replay" or answer["decisions"]


def test_altered_output_is_refused(run, state):
    answer = run("queues", "-f", state, "-o", "json").answer
    for change in ({"queues": [{}]}, {"queues": "a"}, {"apiVersion": "v1"}, {"extra": 1}):
        assert list(problems({**answer, **change}, "queues")), change


def test_schema_file_is_current_and_has_every_command():
    assert json.loads(PATH.read_text()) == json.loads(json.dumps(schema())), "run `make reference`"
    commands = {command.name for command in app.registered_commands if command.name != "completion"}
    for group in app.registered_groups:
        commands |= {f"{group.name}-{command.name}" for command in group.typer_instance.registered_commands}
    assert commands <= set(REPORTS)
